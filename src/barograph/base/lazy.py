"""What is computed when it is first read: an attribute of an object, and the values of a committed step for the
training loop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
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


Finished = tuple[Mapping[str, float], Mapping[str, str]]
"""Values by name, and the reasons for metrics without one."""

Finish = Callable[[], Finished]


class StepValues(Mapping[str, float]):
    """Values of a step by name, and in ``missing`` the reasons for metrics without a value. Read-only.

    They are computed from the step's states when something is first read, so that a process which ignores them pays
    nothing. Reading never raises anything but KeyError: what cannot be computed is reported and is not there.
    """

    def __init__(
        self,
        finishes: Iterable[Finish] = (),
        report: Callable[[str, Exception], None] = lambda call, error: None,
    ) -> None:
        self._finishes = list(finishes)
        self._report = report
        self._lock = threading.Lock()
        self._values: dict[str, float] = {}
        self._missing: dict[str, str] = {}

    @classmethod
    def of(cls, values: Mapping[str, float], missing: Mapping[str, str]) -> StepValues:
        """Return values that are known already."""
        return cls([lambda: (values, missing)])

    @property
    def missing(self) -> Mapping[str, str]:
        """Reasons for metrics without a value, by name."""
        self._finish()
        return self._missing

    def __getitem__(self, name: str) -> float:
        self._finish()
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        self._finish()
        return iter(self._values)

    def __len__(self) -> int:
        self._finish()
        return len(self._values)

    def __repr__(self) -> str:
        self._finish()
        return repr(self._values)

    def __reduce__(self) -> Any:
        return StepValues.of, (dict(self), dict(self.missing))

    def _finish(self) -> None:
        if not self._finishes:
            return
        with self._lock:
            # Emptied last: a thread that finds it empty finds all values.
            for finish in self._finishes:
                try:
                    values, missing = finish()
                except Exception as error:  # noqa: BLE001 - read inside a training loop, where nothing may raise
                    self._report("values of a commit", error)
                    continue
                self._values |= values
                self._missing |= missing
            self._finishes = []
