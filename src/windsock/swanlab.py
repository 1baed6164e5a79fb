"""SwanLab's interface, recorded by windsock: ``import windsock.swanlab as swanlab``."""

from windsock.integrations.swanlab import *  # noqa: F403 - the names of the package that it replaces
from windsock.integrations.swanlab import __all__ as __all__
from windsock.integrations.swanlab import __getattr__ as __getattr__
