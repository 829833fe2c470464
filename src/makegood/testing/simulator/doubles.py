"""Stores that stand in front of another one: some verbs are their own, all others are the real store's."""

from typing import Any

SLICES = frozenset(
    [
        "tasks",
        "requests",
        "supervision",
        "schedules",
        "alerts",
        "queues",
        "notices",
        "leases",
        "nodes",
        "admin",
    ]
)


class Doubled:
    """A store in front of ``store``, or of none. A method that is named as a verb of a slice is in its place
    there.
    """

    def __init__(self, store: Any) -> None:
        self._store: Any = store

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._store, name, None) if name in SLICES else getattr(self._store, name)
        if name in SLICES:
            member = _Slice(self, name, member)
            setattr(self, name, member)
            return member
        return self.double_of(name, member)

    def double_of(self, name: str, member: Any) -> Any:  # noqa: ARG002 - for those who watch
        """Return what a verb is that has no method here. The views of a slice bear its name."""
        return member


class _Slice:
    def __init__(self, double: Doubled, name: str, real: Any) -> None:
        self._double = double
        self._name = name
        self._real = real

    def __getattr__(self, verb: str) -> Any:
        if hasattr(type(self._double), verb):
            return getattr(self._double, verb)
        real = None if self._real is None else getattr(self._real, verb)
        member = self._double.double_of(self._name if verb == "views" else verb, real)
        setattr(self, verb, member)
        return member
