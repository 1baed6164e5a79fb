"""Trackio's interface, recorded by barograph: ``import barograph.trackio as trackio``."""

from barograph.integrations.drop_ins.trackio import *  # noqa: F403 - the names of the package that it replaces
from barograph.integrations.drop_ins.trackio import __all__ as __all__
from barograph.integrations.drop_ins.trackio import __getattr__ as __getattr__
