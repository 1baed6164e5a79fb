"""The module for ``VERL_USE_EXTERNAL_MODULES=barograph.verl``, which veRL before 0.9 needs."""

# Not from it: where the actor of a Ray job imports it first, veRL imports this module before that one is complete.
import barograph.integrations.frameworks.verl  # noqa: F401
