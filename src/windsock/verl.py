"""The module for ``VERL_USE_EXTERNAL_MODULES=windsock.verl``, which veRL before 0.9 needs."""

# Not from it: where the actor of a Ray job imports it first, veRL imports this module before that one is complete.
import windsock.integrations.verl  # noqa: F401
