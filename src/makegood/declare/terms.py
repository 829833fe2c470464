"""The terms on which an action is declared: how long, how often, what follows, and how it is made good.

``Declared`` is what a user passed to ``@agent.action(...)``; ``Terms`` is its meaning.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from makegood.base.durations import Duration, seconds
from makegood.base.ids import checked_name
from makegood.base.old_names import OLD, translated
from makegood.declare.outcomes import NOTHING
from makegood.errors import ConfigError, DefinitionError
from makegood.model.policy import Recover, Retry

LEAST_WITHIN = 0.001
"""Seconds; a shorter deadline makes no sense."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms of an action, as ``@agent.action(...)`` declares them."""

    within: float
    """Seconds that one attempt may take."""
    retry: Retry
    recover: Recover
    nothing: bool
    """Declared with ``undo=mg.NOTHING``."""
    no_return: bool
    remembers: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """The options of ``@agent.action(...)``, unchecked."""

    complete_within: Any = None
    undo: Any = None
    no_return: bool = False
    retry: Any = None
    recover: Any = None
    remembers: bool = False
    name: str | None = None
    formerly: Any = ()

    def terms(self, where: str) -> Terms:
        """Return the terms of an action; raises ``DefinitionError`` for options that make no sense."""
        if self.undo is not None and self.undo is not NOTHING:
            raise DefinitionError(
                f"{where}: undo={self.undo!r}: only mg.NOTHING goes here; a function is declared below the action, with "
                f"@{where.rpartition('/')[2]}.undo above it"
            )
        if self.no_return and self.undo is NOTHING:
            raise DefinitionError(
                f"{where} says both undo=mg.NOTHING (harmless) and no_return=True (no way back): drop one of them"
            )
        retry = Retry() if self.retry is None else self.retry
        recover = Recover() if self.recover is None else self.recover
        if not isinstance(retry, Retry):
            raise DefinitionError(f"{where}: retry={retry!r}: pass mg.Retry(...) or mg.NEVER")
        if not isinstance(recover, Recover):
            raise DefinitionError(f"{where}: recover={recover!r}: pass mg.Recover(...)")
        if retry.never and retry.tries != 1:
            raise DefinitionError(f"{where}: retry={retry!r} is one try at most: pass mg.NEVER")
        if retry.never and self.remembers:
            raise DefinitionError(
                f"{where} says both remembers=True (the service remembers its answer per key) and retry=mg.NEVER (it knows no keys): "
                f"drop one of them"
            )
        return Terms(
            within=checked_within(self.complete_within, where),
            retry=retry,
            recover=recover,
            nothing=self.undo is NOTHING,
            no_return=bool(self.no_return),
            remembers=bool(self.remembers),
        )


def known(options: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """Return ``options``; raises ``DefinitionError`` for one that an action does not have."""
    names = [name for name in Declared.__dataclass_fields__ if name != "complete_within"]
    options = translated("action", OLD["action"], options.items())
    for name in options:
        if name not in names:
            raise DefinitionError(
                f"{where}: there is no option {name!r}; there are complete_within, {', '.join(names)}"
            )
    return options


def checked_within(value: Any, where: str) -> float:
    """Return a deadline in seconds; raises ``DefinitionError`` if it is missing, zero, or not a duration."""
    limit = checked_limit(value, "complete_within", where)
    if limit is None:
        raise DefinitionError(
            f'{where} has no deadline: pass complete_within="30s"; no attempt may run forever'
        )
    return limit


def checked_limit(value: Duration | None, option: str, where: str) -> float | None:
    """Return the seconds of a workflow's limit; None for no limit. Raises ``DefinitionError``."""
    if value is None:
        return None
    try:
        return seconds(value, name=option, least=LEAST_WITHIN)
    except ConfigError as wrong:
        raise DefinitionError(f"{where}: {wrong}") from None


def former_names(names: Any) -> tuple[str, ...]:
    """Return the names an action had; raises ``DefinitionError`` for one that is not allowed."""
    if isinstance(names, str):
        raise DefinitionError(f"formerly={names!r} is one text: pass a tuple of names, formerly=({names!r},)")
    return tuple(checked_name(name, "former action") for name in names)
