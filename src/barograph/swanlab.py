"""SwanLab's interface, recorded by barograph: ``import barograph.swanlab as swanlab``."""

from barograph.integrations.drop_ins.swanlab import *  # noqa: F403 - the names of the package that it replaces
from barograph.integrations.drop_ins.swanlab import __all__ as __all__
from barograph.integrations.drop_ins.swanlab import __getattr__ as __getattr__
