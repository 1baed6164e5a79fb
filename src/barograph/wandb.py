"""W&B's interface, recorded by barograph: ``import barograph.wandb as wandb``. docs/frameworks/wandb.md has the map."""

from barograph.integrations.drop_ins.wandb import *  # noqa: F403 - the names of the package that it replaces
from barograph.integrations.drop_ins.wandb import __all__ as __all__
from barograph.integrations.drop_ins.wandb import __getattr__ as __getattr__
