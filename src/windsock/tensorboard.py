"""TensorBoard's writer, recorded by windsock: ``from windsock.tensorboard import SummaryWriter``."""

from windsock.integrations.tensorboard import *  # noqa: F403 - the names of the package that it replaces
from windsock.integrations.tensorboard import __all__ as __all__
from windsock.integrations.tensorboard import __getattr__ as __getattr__
