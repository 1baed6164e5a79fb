"""What metrics mean, and their names in every framework.

The metrics are declared in the text files of ``data``, whose README explains them: `entries` and `declarations`
read these, and `registry` loads what is built from them. `names` finds what a name can mean, `resolution` decides
what the names of a run mean, with `evidence`. Order: `spec` and `sources`, then `registry`, then `names` and
`evidence`, then `resolution`, `describe` and `translate`, then `headline`; the builders `declarations` and
`reference_pages` are imported by nothing else.
"""
