"""SwanLab's interface, recorded by barograph: ``import barograph.swanlab as swanlab``."""

from barograph.integrations.drop_ins.swanlab import *  # noqa: F403 - the names of the package that it replaces
