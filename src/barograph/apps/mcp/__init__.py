"""The MCP server: a directory of runs as tools for programs that speak the Model Context Protocol.

A `tool` is a function of `runs` and its arguments; what it returns is made small and clean. `serving` offers the tools
and sends their answers.
"""
