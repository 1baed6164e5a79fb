"""What people and programs use: the commands, the terminal, the page, the tools for agents, and the demo.

Each asks `answers` and draws. `terminal` knows nothing of `page`, `demo` and `mcp`; `mcp` is served behind the
guard of `page`; `cli` starts them all.
"""
