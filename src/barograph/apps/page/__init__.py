"""The web page of a directory of runs.

`http` serves it, live, for people and scripts (`docs/api.md` describes the API); `web` has its files, and `files`
gives them out: one by one, or with the data of runs as one HTML file. `files` knows nothing of `http`.
"""
