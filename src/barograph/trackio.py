"""Trackio's interface, recorded by barograph: ``import barograph.trackio as trackio``."""

from barograph.integrations.drop_ins.trackio import *  # noqa: F403 - the names of the package that it replaces
