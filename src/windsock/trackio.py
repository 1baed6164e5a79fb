"""Trackio's interface, recorded by windsock: ``import windsock.trackio as trackio``."""

from windsock.integrations.trackio import *  # noqa: F403 - the names of the package that it replaces
from windsock.integrations.trackio import __all__ as __all__
from windsock.integrations.trackio import __getattr__ as __getattr__
