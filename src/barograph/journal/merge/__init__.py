"""Merging over ranks: the values of a step that several ranks of a role contribute to.

`coverage`, `ranks`, `measurements` and `rollouts` know nothing of roles; `role_merger` knows nothing of series;
`merged_role` has both for a view.
"""
