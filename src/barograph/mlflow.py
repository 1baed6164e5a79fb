"""The interface of MLflow's tracking, recorded by barograph: ``import barograph.mlflow as mlflow``."""

from barograph.integrations.drop_ins.mlflow import *  # noqa: F403 - the names of the package that it replaces
from barograph.integrations.drop_ins.mlflow import __all__ as __all__
from barograph.integrations.drop_ins.mlflow import __getattr__ as __getattr__
