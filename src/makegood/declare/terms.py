"""The terms on which an action is declared: how long, how often, what follows, and how it is made good.

``Declared`` is what a user passed to ``@agent.action(...)``; ``Terms`` is its meaning.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from makegood.base.arguments import unknown
from makegood.base.durations import Duration, seconds, short_duration
from makegood.base.ids import checked_name
from makegood.base.service_keys import checked_form, length_of, longest_key
from makegood.declare.outcomes import NOTHING
from makegood.errors import ConfigError, DefinitionError
from makegood.keys import PLAIN, Preset
from makegood.model.policy import Recover, Retry, shorten, span

LEAST_WITHIN = 0.001
"""Seconds; a shorter deadline makes no sense."""
EXTEND_MOST = 10
"""``call.extend()`` may make an attempt this many times as long as its ``complete_within``, unless
``extend_up_to`` says how long.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms of an action, as ``@agent.action(...)`` declares them."""

    within: float
    """Seconds that one attempt may take."""
    retry: Retry
    tries: int
    """Among how many tries an attempt shares its time: those of a ``retry`` that was passed, else 1."""
    recover: Recover
    nothing: bool
    """Declared with ``undo=mg.NOTHING``."""
    no_return: bool
    remembers: bool
    keys: Preset
    """What its service says of keys."""
    has_recover: bool
    """Whether ``recover`` was passed."""
    resumes: bool = False
    """The next attempt begins once the process that ran one is known to be dead."""
    extend_up_to: float | None = None
    """Seconds that an extended attempt may take; None: ``EXTEND_MOST`` times its ``complete_within``."""
    cancellable: bool = False
    """An ``async def`` that is cancelled once nobody needs it."""
    readable: bool = False
    """Whether its result stays plain where the app has a codec."""

    def longest(self, within: float) -> float:
        """Return the seconds that an attempt may take at most, if it was given ``within`` and is extended."""
        return EXTEND_MOST * within if self.extend_up_to is None else max(within, self.extend_up_to)

    def fitting(self, where: str, recover: Recover | None, within: float) -> Recover:
        """Return a policy that ends before the service forgets the key: ``recover``, or for None the default,
        shortened. Raises ``DefinitionError`` for one that was written and does not fit.
        """
        if self.keys.keeps is None or self.retry.never:
            return recover or Recover()
        keeps = seconds(self.keys.keeps)
        if recover is None:
            return shorten(Recover(), within, keeps)
        lasts = span(recover, within)
        if lasts > keeps:
            waits, tries = lasts - (recover.threshold + 2) * within, recover.threshold + 2
            raise DefinitionError(
                f"{where}: recover={recover!r} makes {tries} attempts of {short_duration(within)} and waits {short_duration(waits)} between them, "
                f"{short_duration(lasts)} in all, and the service keeps a key for {short_duration(keeps)}: makegood would not send the last ones. Pass a "
                f"lower threshold or shorter waits; without recover= the default is shortened to fit"
            )
        return recover


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """The options of ``@agent.action(...)``, unchecked."""

    complete_within: Any = None
    extend_up_to: Any = None
    cancellable: bool = False
    undo: Any = None
    no_return: bool = False
    retry: Any = None
    recover: Any = None
    remembers: bool | None = None
    key: Any = None
    key_limit: Any = None
    keeps: Any = None
    name: str | None = None
    formerly: Any = ()
    readable: bool = False

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
        if not isinstance(retry, Retry):
            raise DefinitionError(f"{where}: retry={retry!r}: pass mg.Retry(...) or mg.NEVER")
        if not isinstance(self.recover, Recover | None):
            raise DefinitionError(f"{where}: recover={self.recover!r}: pass mg.Recover(...)")
        if retry.never and retry.tries != 1:
            raise DefinitionError(f"{where}: retry={retry!r} is one try at most: pass mg.NEVER")
        if retry.never and self.remembers:
            raise DefinitionError(
                f"{where} says both remembers=True (the service remembers its answer per key) and retry=mg.NEVER (it knows no keys): "
                f"drop one of them"
            )
        if retry.never and self.key is not None:
            raise DefinitionError(
                f"{where} says both key={self.key!r} (how the service takes keys) and retry=mg.NEVER (it knows none): drop one of "
                f"them; for one try in each attempt write mg.Retry(tries=1)"
            )
        if retry.never and self.keeps is not None:
            raise DefinitionError(
                f"{where} says both keeps={self.keeps!r} (how long the service remembers a key) and retry=mg.NEVER (it knows none): "
                f"drop one of them"
            )
        if retry.never and self.recover is not None and self.recover.resume == "dead":
            raise DefinitionError(
                f'{where} says both Recover(resume="dead") (its service honours keys) and retry=mg.NEVER (it knows none): drop one of them'
            )
        keys = self._keys(where)
        within = check_within(self.complete_within, where)
        extend_up_to = check_limit(self.extend_up_to, "extend_up_to", where)
        if extend_up_to is not None and extend_up_to < within:
            raise DefinitionError(
                f"{where}: extend_up_to={self.extend_up_to!r} is shorter than complete_within={self.complete_within!r}: an attempt may take "
                f"complete_within without an extension; pass a longer extend_up_to, or leave it out"
            )
        remembers = bool(keys.remembers if self.remembers is None else self.remembers)
        resume = None if self.recover is None else self.recover.resume
        terms = Terms(
            within=within,
            retry=retry,
            tries=1 if self.retry is None else retry.tries,
            recover=self.recover or Recover(),
            nothing=self.undo is NOTHING,
            no_return=bool(self.no_return),
            remembers=remembers,
            keys=keys,
            resumes=resume == "dead" or (resume is None and (remembers or self.key is not None)),
            has_recover=self.recover is not None,
            extend_up_to=extend_up_to,
            cancellable=bool(self.cancellable),
            readable=self._readable(where),
        )
        return replace(terms, recover=terms.fitting(where, self.recover, terms.within))

    def _readable(self, where: str) -> bool:
        if not isinstance(self.readable, bool):
            raise DefinitionError(
                f"{where}: readable={self.readable!r}: True if Schedulers may read its result, which is then not encoded"
            )
        return self.readable

    def _keys(self, where: str) -> Preset:
        """Return what is declared of the service's keys."""
        key = self.key
        if not (key is None or isinstance(key, str | Preset)):
            raise DefinitionError(
                f'{where}: key={key!r}: pass a form, such as "uuid", or what is known of the service, such as mg.keys.SQUARE'
            )
        try:
            preset = replace(PLAIN, form=key) if isinstance(key, str) else key or PLAIN
            if self.key_limit is not None:
                preset = replace(preset, limit=self.key_limit)
            return preset if self.keeps is None else replace(preset, keeps=self.keeps)
        except ConfigError as wrong:
            raise DefinitionError(f"{where}: {wrong}") from None


def check_key_length(where: str, step: str, direction: str, keys: Preset) -> None:
    """Raise ``DefinitionError`` if the readable key of a step is longer than its service takes."""
    if keys.limit is None or checked_form(keys.form, where):
        return
    length = longest_key(step, direction)
    if length > keys.limit:
        raise DefinitionError(
            f"{where}: the idempotency key for {'undoing ' if direction == 'undo' else ''}step {step} has {length} characters, and {keys.service} takes {keys.limit}: "
            f'pass key="uuid", which has {length_of("uuid")} in both directions'
        )


def check_options(options: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """Return ``options``; raises ``DefinitionError`` for one that an action does not have."""
    names = list(Declared.__dataclass_fields__)
    if wrong := list(unknown(options, names, "option")):
        raise DefinitionError(f"{where}: {'; '.join(wrong)}; there are {', '.join(names)}")
    return options


def check_within(value: Any, where: str) -> float:
    """Return a deadline in seconds; raises ``DefinitionError`` if it is missing, zero, or not a duration."""
    limit = check_limit(value, "complete_within", where)
    if limit is None:
        raise DefinitionError(
            f'{where} has no deadline: pass complete_within="30s"; no attempt may run forever'
        )
    return limit


def check_limit(value: Duration | None, option: str, where: str) -> float | None:
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
