"""Find a run in all processes of a Ray job: ``barograph.ray.share(run)`` and ``barograph.ray.shared_run()``."""

from barograph.integrations.frameworks.ray import share, shared_run

__all__ = ["share", "shared_run"]
