"""The page's server: views of runs over HTTP, live, for people and scripts (``docs/api.md`` describes the API).

``runs`` finds and opens the runs of a directory, ``views`` turns an open run into JSON, ``http`` serves both, and
``web`` contains the page. ``report_file`` writes a run and the page into one HTML file.
"""
