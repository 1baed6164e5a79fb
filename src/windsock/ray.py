"""Find a run in all processes of a Ray job: ``windsock.ray.share(run)`` and ``windsock.ray.shared_run()``."""

from windsock.integrations.ray import share, shared_run

__all__ = ["share", "shared_run"]
