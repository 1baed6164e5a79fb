"""The interface of MLflow's tracking, recorded by windsock: ``import windsock.mlflow as mlflow``."""

from windsock.integrations.mlflow import *  # noqa: F403 - the names of the package that it replaces
from windsock.integrations.mlflow import __all__ as __all__
from windsock.integrations.mlflow import __getattr__ as __getattr__
