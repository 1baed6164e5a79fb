"""Merging over ranks: the values of a step that several ranks of a role contribute to.

There are three kinds of contributions. Measured states and rollout states are merged before anything is divided. Times,
memory and counts are rows of each rank, which are reduced. Views and the relay both merge here, so that a tracker shows
what a view shows. Where a rank's share is missing (``windsock.journal.coverage``) there is no value.
"""

from windsock.journal.coverage import Progress
from windsock.merging.merged_role import MergedRole
from windsock.merging.role_merger import RoleMerger
from windsock.probe.ranks import names_over_ranks, reduced_series

__all__ = ["MergedRole", "Progress", "RoleMerger", "names_over_ranks", "reduced_series"]
