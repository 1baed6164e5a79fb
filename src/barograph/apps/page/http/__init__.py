"""The HTTP side of the page.

`guard`, `parameters` and `connection_limits` know nothing of runs; `handlers` and `ingest` answer, `endpoints` and
`openapi` describe them, `live` tells of changes; `app` puts them together and `serving` runs it.
"""
