"""Receivers of notices that take none: operators hear of them, and what waits goes when they are back.

A receiver is a broker, or a webhook host that the settings name in full. (Hosts that match a pattern such as
"*.example.com" are their submitters' concern.) While it is away each notice waits out its own pause, which
grows to hours. So this process asks a broker now and then whether it answers again, and sends one notice once
it does. The first that gets through makes others due: one, then two, four, … at a time, as long as they get
through. So a broker that takes one message a minute does not use up the tries of all that wait.
"""

import asyncio
import logging
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from msgspec.structs import replace

from makegood.base.cancelling import cancel_and_wait
from makegood.base.clock import Clock
from makegood.base.text import without_backticks, words
from makegood.brokers import KINDS, MissingPlaceError, RefusedTargetError
from makegood.brokers.address import is_address
from makegood.errors import ConfigError, DeliveryError
from makegood.messaging.broker_poster import BrokerPoster
from makegood.messaging.hosts import Hosts
from makegood.messaging.poster import Poster
from makegood.messaging.source_report import AWAY
from makegood.model.messages import Alert
from makegood.store.notice_records import Due, HostDue
from makegood.store.protocol import Store
from makegood.store.views import SenderInfo
from makegood.telemetry.hooks import Observer

log = logging.getLogger("makegood.notifier")

PROBE: Final = 15.0
"""Seconds between two questions to a broker that is away."""
LONGEST_PROBE: Final = 3600.0
"""The same, at most, to one that answers and takes nothing; doubled each time."""
AT_A_TIME: Final = 32
"""Notices made due by one statement, at most."""
MOST_MISSING: Final = 20
"""Missing places at brokers that have an alert by this process: submitters choose among places."""
_ONCE_MORE: Final = 60.0
"""Seconds after which an alert is written again, with the latest error."""
_TRIES: Final = 3
"""Failures in a row after which a host of webhooks is taken to be away, and not only one address of it."""
_FAULT_OF_SERVER: Final = 500


@dataclass(slots=True)
class Receiver:
    """A receiver, as this process knows it. Moments are those of the monotonic clock."""

    info: SenderInfo
    tried_at: float = 0.0
    away_since: float | None = None
    """When it failed first since it last took something."""
    failures: int = 0
    """How often since then."""
    alert_at: float | None = None
    """When its alert was last written."""
    may_have_alert: bool = False
    """Whether an alert of it may be open: at first, of a broker, one of a process before this one."""
    was_heard: bool = False
    """It has answered since this process started."""
    probe_at: float = 0.0
    probe_pause: float = PROBE
    place: str = ""
    """The place at it that took nothing."""
    returning: int = 0
    """How many notices are made due now; 0: it is not known to be back, or nothing got through since the last
    time.
    """
    next_returning: int = 0
    """How many are once another one gets through."""


class Receivers:
    """What is known of the receivers. ``wake`` is set when a probe has ended."""

    def __init__(
        self,
        store: Store,
        hosts: Hosts,
        *,
        clock: Clock,
        rng: random.Random,
        telemetry: Observer | None = None,
    ) -> None:
        self.hosts = hosts
        self.wake: asyncio.Event | None = None
        self._store = store
        self._clock = clock
        self._rng = rng
        self._telemetry = telemetry
        self._receivers: dict[str, Receiver] = {}
        self._missing: set[str] = set()
        """Addresses that have an alert."""
        self._alerts: dict[str, tuple[Alert, str]] = {}
        """Alerts to write, each with why it is to be ended, "" if it is to be raised."""
        self.probes: dict[str, asyncio.Task[None]] = {}
        """Questions under way, by broker."""

    # What is reported to it

    def note_success(self, notice: Due) -> None:
        """A notice got through."""
        if notice.url in self._missing:
            self._missing.discard(notice.url)
            self._end(notice.url)
        receiver = self._of(notice.host)
        if receiver is None:
            return
        self._count(receiver, "sent", "")
        if _is_broker(notice.host):
            was_away = receiver.failures > 0 or not receiver.was_heard
        else:
            was_away = receiver.failures >= _TRIES
        if was_away:
            receiver.next_returning = max(1, receiver.next_returning)
        receiver.returning = receiver.next_returning
        self._back(receiver)

    def note_failure(self, notice: Due, fault: DeliveryError) -> bool:
        """A notice did not get through, or may not have. Returns whether its receiver is away, which the log
        has once.
        """
        if isinstance(fault, MissingPlaceError) and (
            notice.url in self._missing or len(self._missing) < MOST_MISSING
        ):
            self._missing.add(notice.url)
            self._raise(notice.url, fault)
        receiver = self._of(notice.host)
        if receiver is None:
            return False
        self._count(receiver, "failed", words(fault))
        if isinstance(fault, RefusedTargetError):
            return False
        if not _is_broker(notice.host) and 0 < fault.status < _FAULT_OF_SERVER:  # it answers
            self._back(receiver)
            return False
        receiver.place = notice.url.partition("/")[2]
        self._absent(notice.host, receiver, fault)
        return True

    # What comes of it

    async def turn(self, due: Sequence[HostDue], poster: Poster, busy: Collection[str]) -> list[HostDue]:
        """Write alerts, ask brokers that are away, and make notices due; returns what is due after that.

        ``busy``: the hosts to which something is on its way.
        """
        while self._alerts:
            name, entry = next(iter(self._alerts.items()))
            alert, why = entry
            if why:
                await self._store.alerts.ease([alert], why)
            else:
                await self._store.alerts.alert([alert])
            if self._alerts[name] is entry:  # and not what became of it meanwhile
                del self._alerts[name]
        waiting = {each.host: each.seconds for each in due}
        for host, receiver in self._receivers.items():
            if host not in waiting:
                receiver.returning = receiver.next_returning = 0
        if isinstance(poster, BrokerPoster):
            self._ask(poster, waiting, busy)
        return [await self._after(each) for each in due]

    async def _after(self, due: HostDue) -> HostDue:
        receiver = self._receivers.get(due.host)
        if receiver is None or not receiver.returning or due.seconds <= 0:
            return due
        limit, receiver.returning = receiver.returning, 0
        count = await self._store.notices.wake_notices(due.host, limit)
        receiver.next_returning = min(2 * limit, AT_A_TIME) if count == limit else 0
        return HostDue(due.host, 0.0) if count else due

    def _ask(self, poster: BrokerPoster, waiting: Mapping[str, float], busy: Collection[str]) -> None:
        """Ask brokers whether they answer: those that are away, and those of which nothing is known while
        notices wait for their next try.
        """
        now = self._clock.monotonic()
        for host in dict.fromkeys([*self._receivers, *waiting]):
            receiver = self._of(host) if _is_broker(host) else None
            if receiver is None or now < receiver.probe_at or host in self.probes:
                continue
            is_unknown = not receiver.was_heard and waiting.get(host, 0.0) > 0 and host not in busy
            if receiver.away_since is not None or is_unknown:
                probe = self._probe(poster, host, receiver, does_wait=host in waiting)
                self.probes[host] = asyncio.get_running_loop().create_task(probe, name="ask a broker")

    async def _probe(self, poster: BrokerPoster, host: str, receiver: Receiver, *, does_wait: bool) -> None:
        pause = PROBE
        try:
            await poster.probe(host, receiver.place)
        except DeliveryError as fault:
            self._absent(host, receiver, fault)
            receiver.place = ""  # which may be all that is wrong: the next time the broker alone is asked
        except Exception as defect:
            log.exception("whether %s takes notices", host)
            self._absent(host, receiver, DeliveryError(words(defect, named=True)))
        else:
            receiver.was_heard = True
            if does_wait:  # the first that gets through shows that it is back
                receiver.returning = 1
                pause = receiver.probe_pause
                receiver.probe_pause = min(2 * pause, LONGEST_PROBE)
            else:
                self._back(receiver)
        finally:
            del self.probes[host]
            receiver.probe_at = self._clock.monotonic() + pause * self._rng.uniform(0.8, 1.2)
            if self.wake is not None:
                self.wake.set()

    def rest(self) -> float | None:
        """Return the seconds until a broker is asked again; None: none is."""
        now = self._clock.monotonic()
        moments = [
            each.probe_at for host, each in self._receivers.items()
            if _is_broker(host) and host not in self.probes and each.away_since is not None
        ]  # fmt: skip
        return max(0.0, min(moments) - now) if moments else None

    def infos(self) -> tuple[SenderInfo, ...]:
        """Return what this process publishes about the brokers to which it sends."""
        now = self._clock.monotonic()
        return tuple(
            replace(
                each.info,
                away=None if each.away_since is None else now - each.away_since,
                last_try=now - each.tried_at,
            )
            for host, each in self._receivers.items()
            if _is_broker(host) and each.tried_at
        )

    async def close(self) -> None:
        """Ask nobody any more."""
        await cancel_and_wait(*self.probes.values())

    # What is kept

    def _of(self, host: str) -> Receiver | None:
        """Return what is known of a receiver; None for a host that the settings do not name."""
        receiver = self._receivers.get(host)
        if receiver is None and self.hosts.name(host):
            receiver = Receiver(SenderInfo(host), may_have_alert=_is_broker(host))
            self._receivers[host] = receiver
        return receiver

    def _count(self, receiver: Receiver, outcome: Literal["sent", "failed"], error: str) -> None:
        info = receiver.info
        receiver.info = replace(info, error=error, **{outcome: getattr(info, outcome) + 1})
        receiver.tried_at = self._clock.monotonic()
        if self._telemetry is not None and _is_broker(info.broker):
            self._telemetry.broker_send(info.broker, outcome)

    def _back(self, receiver: Receiver) -> None:
        if receiver.away_since is not None:
            log.info("%s takes notices again", receiver.info.broker)
        if receiver.may_have_alert:
            self._end(receiver.info.broker)
        receiver.was_heard, receiver.may_have_alert = True, False
        receiver.tried_at = self._clock.monotonic()
        receiver.away_since, receiver.failures = None, 0
        receiver.probe_pause, receiver.alert_at = PROBE, None
        receiver.info = replace(receiver.info, error="")

    def _absent(self, host: str, receiver: Receiver, fault: DeliveryError) -> None:
        now = receiver.tried_at = self._clock.monotonic()
        receiver.info = replace(receiver.info, error=words(fault))
        receiver.failures += 1
        receiver.returning = receiver.next_returning = 0
        if receiver.away_since is None:
            receiver.away_since = now
            log.warning("%s takes no notices: %s", host, words(fault).removeprefix(f"{host}: "))
            receiver.probe_at = now + PROBE * self._rng.uniform(0.8, 1.2)
        is_denied = isinstance(fault.__cause__, ConfigError)  # only somebody can change that
        is_long = now - receiver.away_since >= AWAY and receiver.failures >= _TRIES
        is_written = receiver.alert_at is not None and now - receiver.alert_at < _ONCE_MORE
        if (is_denied or is_long) and not is_written:
            receiver.alert_at, receiver.may_have_alert = now, True
            self._raise(host, fault)

    def _raise(self, name: str, fault: DeliveryError) -> None:
        text = without_backticks(f"{name} takes no notices: {words(fault)}")[:1000]
        self._alerts[name] = Alert("receiver_away", step=name, text=text), ""

    def _end(self, name: str) -> None:
        self._alerts[name] = Alert("receiver_away", step=name), "it takes notices again"


def _is_broker(host: str) -> bool:
    return is_address(host, KINDS)  # the address of a host may have a colon, too
