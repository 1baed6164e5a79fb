"""Attributes that are made when they are first read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class lazy(Generic[T]):  # noqa: N801 - used as a decorator, like property
    """Decorator of a method whose result becomes an attribute of that name.

    The result is stored in the instance's ``__dict__``, where later reads find it without a call. ``setdefault`` is
    atomic: of two threads that read it first, both get the same object. ``functools.cached_property`` would give each
    its own.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, instance: None, owner: Any) -> lazy[T]: ...
    @overload
    def __get__(self, instance: object, owner: Any) -> T: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        return vars(instance).setdefault(self._make.__name__, self._make(instance))
