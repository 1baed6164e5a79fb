"""Answers about runs as records, which commands print with ``--json`` and the MCP server gives; their schemas."""
