"""The page's server: views of runs over HTTP, live, for people and scripts (``docs/api.md`` is the contract).

``library`` knows the runs of a directory and keeps some of them open; one module per view turns a run into records;
``endpoints`` lists the addresses; ``guard`` decides who may ask; ``app`` puts it together and ``serving`` runs it.
"""
