"""W&B's interface, recorded by windsock: ``import windsock.wandb as wandb``. docs/frameworks/wandb.md has what maps."""

from windsock.integrations.wandb import *  # noqa: F403 - the names of the package that it replaces
from windsock.integrations.wandb import __all__ as __all__
from windsock.integrations.wandb import __getattr__ as __getattr__
