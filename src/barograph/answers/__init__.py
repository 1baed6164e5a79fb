"""What page, commands and agents say about runs, as records.

`records`, `responses`, `phases` and `open_run` know nothing of the folders; `views` and `runs` know nothing of each
other; `comparison`, `groups` and `reports` use both.
"""
