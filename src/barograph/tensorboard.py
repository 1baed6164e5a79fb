"""TensorBoard's writer, recorded by barograph: ``from barograph.tensorboard import SummaryWriter``."""

from barograph.integrations.drop_ins.tensorboard import *  # noqa: F403 - the names of the package that it replaces
from barograph.integrations.drop_ins.tensorboard import __all__ as __all__
from barograph.integrations.drop_ins.tensorboard import __getattr__ as __getattr__
