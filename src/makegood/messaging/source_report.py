"""What people see of a source: counts, what waits at the broker, its absence, and alerts."""

import logging
from collections.abc import Sequence
from typing import Final, Literal

from msgspec.structs import replace

from makegood.base.clock import Clock
from makegood.base.counts import quantity
from makegood.base.text import without_backticks
from makegood.brokers import BrokerAddress, Delivery, Requirement, Source
from makegood.errors import ConfigError, MakegoodError
from makegood.model.messages import Alert, AlertKind
from makegood.store.protocol import Store
from makegood.store.views import SourceInfo
from makegood.telemetry.hooks import Observer

log = logging.getLogger("makegood.relay")

AWAY: Final = 30.0
"""Seconds without the broker after which an alert is raised."""
_LOOK: Final = 15.0
"""Seconds between two looks at what waits at the broker."""


def group_of(store_id: str, queue: str) -> str:
    """Return the name by which brokers know those who read for a queue of a store."""
    return f"makegood-{store_id}-{queue}"


class SourceReport:
    """Reports of the source at ``address``: to the log, to operators of ``store``, and to ``telemetry``."""

    def __init__(
        self,
        store: Store,
        address: BrokerAddress,
        queue: str,
        clock: Clock,
        telemetry: Observer | None = None,
    ) -> None:
        self._store = store
        self._name = str(address)
        self._clock = clock
        self._telemetry = telemetry
        self._info = SourceInfo(self._name, queue, parameters=dict(address.parameters))
        self._away_since: float | None = None
        self._warnings: set[str] = set()
        self._may_have_alert = True
        """Whether an alert of this source may be open: at first one of a process before this one."""
        self._has_alert = False
        self._next_look = 0.0
        self._refusal = ""
        """Why the latest message was refused."""

    def info(self) -> SourceInfo:
        """Return what this process publishes about the source."""
        away = self._away_since
        return replace(
            self._info, group=self.group, away=None if away is None else self._clock.monotonic() - away
        )

    @property
    def group(self) -> str:
        """The name that all processes share that read for this queue of this store."""
        return group_of(self._store.identity.store_id, self._info.queue)

    def heed(self, requirements: Sequence[Requirement]) -> None:
        """Log what was checked of the broker, each sentence once. Raises ``ConfigError`` for an error."""
        for requirement in requirements:
            text = f"{self._name}: {requirement.what} -> {requirement.remedy}"
            if requirement.severity == "error":
                raise ConfigError(text)
            if requirement.severity == "warning" and text not in self._warnings:
                self._warnings.add(text)
                log.warning("%s", text)

    def count(self, outcome: Literal["taken", "refused", "redelivered"], count: int) -> None:
        """Add to one of the counts."""
        if count:
            self._info = replace(self._info, **{outcome: getattr(self._info, outcome) + count})
            if self._telemetry is not None:
                self._telemetry.source_messages(self._name, outcome, count)

    def refusal_alert(self, refusals: Sequence[tuple[Delivery, str]], keeper: str) -> Alert:
        """Return the one alert about all messages that no queue could take, these included.

        ``keeper``: what they are put into, and the command that shows them.
        """
        delivery, why = refusals[-1]
        latest = without_backticks(f"{delivery.id or 'without an id'}: {why}")
        text = (
            f"{quantity(self._info.refused + len(refusals), 'message')} of {self._name} could not be taken since this process began, and went to "
            f"{keeper}; the latest, {latest}"
        )
        return self._alert("source_refused", text)

    def refusals(self, count: int, why: str, text: str) -> None:
        """Report messages that no queue could take, and that dead letters have now.

        ``count``: those that they did not have before. ``why``: the latest reason. ``text``: the alert's.
        """
        self.count("refused", count)
        self._refusal = why
        log.error("%s", text)

    async def away(self, fault: MakegoodError) -> None:
        """Report that the broker does not answer, or refuses this process."""
        now, error = self._clock.monotonic(), str(fault).removeprefix(f"{self._name}: ")
        if self._away_since is None:
            self._away_since = now
            log.warning("%s is away: %s", self._name, error)
        self._info = replace(self._info, error=error)
        if not self._has_alert and (isinstance(fault, ConfigError) or now - self._away_since >= AWAY):
            alert = self._alert("source_away", f"{self._name} gives no messages: {without_backticks(error)}")
            await self._store.alerts.alert([alert])
            self._may_have_alert = self._has_alert = True

    async def back(self, trouble: str) -> None:
        """Report that the broker answers.

        ``trouble``: what keeps its messages from being taken for now, "" for nothing.
        """
        if trouble:
            log.warning("%s: %s", self._name, trouble)
        self._info = replace(self._info, error=trouble or self._refusal)
        if self._away_since is not None:
            self._away_since = None
            log.info("%s is back", self._name)
        if self._may_have_alert:
            await self._store.alerts.ease([Alert("source_away", step=self._name)], "it answers again")
            self._may_have_alert = self._has_alert = False

    async def look(self, source: Source) -> None:
        """Read what waits at the broker, now and then."""
        if (now := self._clock.monotonic()) < self._next_look:
            return
        self._next_look = now + _LOOK
        backlog = await source.backlog()
        self._info = replace(self._info, waiting=backlog.waiting, oldest=backlog.oldest)

    def _alert(self, kind: AlertKind, text: str) -> Alert:
        return Alert(kind, step=self._name, text=text[:1000])
