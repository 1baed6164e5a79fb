"""The MCP server: a directory of runs as tools for programs that speak the Model Context Protocol.

A tool is a function of a ``windsock.mcp_server.runs.Runs`` and its arguments that returns an ``Answer``.
``windsock.mcp_server.bounds`` makes a small and clean record of it, ``windsock.mcp_server.serving`` sends that.
"""
