"""The rules, by what they look at. Importing this package registers them, in this order."""

from barograph.diagnosis.rule import RULES
from barograph.diagnosis.rules import critic, learning_signal, off_policy, policy, rewards, schedule, system

__all__ = ["RULES", "critic", "learning_signal", "off_policy", "policy", "rewards", "schedule", "system"]
