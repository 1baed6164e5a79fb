"""What metrics mean, and their names in every framework.

The metrics are declared in the text files of ``data``, whose README explains them: `build` reads these and writes the
compiled file that `registry` loads. `names` finds what a name can mean, `resolution` decides what the names of a run
mean, with `evidence`. Order: `spec` and `sources`, then `registry`, then `names` and `evidence`, then `resolution`,
`describe`, `translate` and `user_metrics`, then `headline`, then `build`.
"""
