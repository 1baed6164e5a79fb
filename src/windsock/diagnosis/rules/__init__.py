"""The rules, by what they look at. Importing this package registers them."""

from windsock.diagnosis.rule import RULES
from windsock.diagnosis.rules import critic, learning_signal, off_policy, policy, rewards, schedule, system

__all__ = ["RULES", "critic", "learning_signal", "off_policy", "policy", "rewards", "schedule", "system"]
