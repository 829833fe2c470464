"""Receivers of notices that take none: operators hear of them, and what waits goes when they are back.

A receiver is a broker, or a webhook host that the settings name in full. (Hosts that match a pattern such as
"*.example.com" are their submitters' concern.) While it is away each notice waits out its own pause, which
grows to hours. So this process asks a broker now and then whether it answers, and sends one notice early once
it does. After the first that gets through it sends others early: one, then two, four, … at a time, as long as
they get through. An early try that fails does not count, and its notice waits out its pause: nothing that a
receiver takes uses up the tries of what it does not take.

A place at a broker that takes nothing although the broker takes notices for other places, such as a full
queue, is a receiver of its own, until it takes something.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
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
from makegood.store.notice_records import Due, HostDue, Waiting
from makegood.store.protocol import Store
from makegood.store.views import SenderInfo
from makegood.telemetry.hooks import Observer

log = logging.getLogger("makegood.notifier")

PROBE: Final = 15.0
"""Seconds between two questions to a broker that is away."""
LONGEST_PROBE: Final = 3600.0
"""The same, at most, to one that answers and takes nothing; doubled each time."""
MOST_PLACES: Final = 20
"""Places at brokers that this process watches or has an alert about: submitters choose among places."""
_ONCE_MORE: Final = 60.0
"""Seconds after which an alert is written again, with the latest error."""
_TRIES: Final = 3
"""Failures in a row after which a host of webhooks is taken to be away, and not only one address of it."""
_FAULT_OF_SERVER: Final = 500


@dataclass(slots=True)
class Receiver:
    """A receiver, as this process knows it. Moments are those of the monotonic clock."""

    host: str
    """The broker, or the host of webhooks."""
    info: SenderInfo
    """What is known of it; its name is ``host``, or the address of a place at a broker."""
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
    """How many notices are sent early now; 0: it is not known to be back, or nothing got through since the
    last time.
    """
    next_returning: int = 0
    """How many are once another one gets through."""
    sent_before: dict[str, int] = field(default_factory=dict)
    """How many notices the broker had taken when a place at it took nothing last."""

    @property
    def name(self) -> str:
        """What alerts call it."""
        return self.info.broker

    @property
    def is_place(self) -> bool:
        """Whether it is a place at a broker."""
        return self.name != self.host


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
        """Questions under way, by receiver."""

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
        receiver.sent_before.pop(notice.url, None)
        self._back(receiver)
        place = self._receivers.get(notice.url)
        if place is not None:
            place.returning = place.next_returning = max(1, place.next_returning)
            self._back(place)

    def note_failure(self, notice: Due, fault: DeliveryError) -> bool:
        """A notice did not get through, or may not have. Returns whether its receiver is away, which the log
        has once.
        """
        if isinstance(fault, MissingPlaceError) and (
            notice.url in self._missing or len(self._missing) < MOST_PLACES
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
        receiver = self._failing(receiver, notice.url)
        receiver.place = notice.url.partition("/")[2]
        self._absent(receiver, fault)
        return True

    def _failing(self, receiver: Receiver, url: str) -> Receiver:
        """Return which receiver takes nothing: the place, if its broker has taken a notice since the place
        failed last, else the broker.
        """
        if not _is_broker(receiver.host):
            return receiver
        if url in self._receivers:
            return self._receivers[url]
        if len(receiver.sent_before) >= MOST_PLACES:
            del receiver.sent_before[next(iter(receiver.sent_before))]
        if receiver.sent_before.setdefault(url, receiver.info.sent) == receiver.info.sent:
            return receiver
        if sum(each.is_place for each in self._receivers.values()) >= MOST_PLACES:
            return receiver
        del receiver.sent_before[url]
        receiver.returning = receiver.next_returning  # what waits for other places is not kept back
        place = Receiver(receiver.host, SenderInfo(url), was_heard=True, may_have_alert=True)
        self._receivers[url] = place
        return place

    # What comes of it

    async def turn(self, due: Sequence[HostDue], poster: Poster, busy: Collection[str]) -> list[HostDue]:
        """Write alerts, and ask brokers that are away; returns what is due, or to be sent early.

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
        for name, receiver in list(self._receivers.items()):
            if receiver.host not in waiting:
                receiver.returning = receiver.next_returning = 0
            if receiver.is_place and receiver.away_since is None and not receiver.next_returning:
                del self._receivers[name]
        if isinstance(poster, BrokerPoster):
            self._ask(poster, waiting, busy)
        returning = {each.host for each in self._receivers.values() if each.returning}
        return [HostDue(each.host, 0.0) if each.host in returning else each for each in due]

    async def take_early(self, node: int, room: Mapping[str, int], lease: float) -> list[Due]:
        """Claim notices that wait for their next try, for receivers that are back. See ``take_notices``."""
        notices: list[Due] = []
        left = Counter(room)
        for receiver in list(self._receivers.values()):
            limit = min(receiver.returning, left[receiver.host])
            if limit <= 0:
                continue
            only = receiver.name if receiver.is_place else ""
            others = [] if only else [each.name for each in self._receivers.values() if each.is_place]
            receiver.returning = 0
            waiting = Waiting(receiver.host, limit, only, others)
            batch = await self._store.notices.take_early_notices(node, waiting, lease)
            growth = max(receiver.next_returning, 2 * limit)
            receiver.next_returning = growth if len(batch) == limit else 0
            left[receiver.host] -= len(batch)
            notices += batch
        return notices

    def _ask(self, poster: BrokerPoster, waiting: Mapping[str, float], busy: Collection[str]) -> None:
        """Ask brokers whether they answer: those that are away, and those of which nothing is known while
        notices wait for their next try.
        """
        now = self._clock.monotonic()
        for name in dict.fromkeys([*self._receivers, *waiting]):
            receiver = self._of(name) if _is_broker(name) else None
            if receiver is None or now < receiver.probe_at or name in self.probes:
                continue
            host = receiver.host
            is_unknown = not receiver.was_heard and waiting.get(host, 0.0) > 0 and host not in busy
            if receiver.away_since is not None or is_unknown:
                probe = self._probe(poster, receiver, does_wait=host in waiting)
                self.probes[name] = asyncio.get_running_loop().create_task(probe, name="ask a broker")

    async def _probe(self, poster: BrokerPoster, receiver: Receiver, *, does_wait: bool) -> None:
        pause = PROBE
        try:
            await poster.probe(receiver.host, receiver.place)
        except DeliveryError as fault:
            self._absent(receiver, fault)
            receiver.place = ""  # which may be all that is wrong: the next time the broker alone is asked
        except Exception as defect:
            log.exception("whether %s takes notices", receiver.name)
            self._absent(receiver, DeliveryError(words(defect, named=True)))
        else:
            receiver.was_heard = True
            if does_wait:  # the first that gets through shows that it is back
                receiver.returning = 1
                pause = receiver.probe_pause
                receiver.probe_pause = min(2 * pause, LONGEST_PROBE)
            else:
                self._back(receiver)
        finally:
            del self.probes[receiver.name]
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
            if _is_broker(host) and not each.is_place and each.tried_at
        )

    async def close(self) -> None:
        """Ask nobody any more."""
        await cancel_and_wait(*self.probes.values())

    # What is kept

    def _of(self, host: str) -> Receiver | None:
        """Return what is known of a receiver; None for a host that the settings do not name."""
        receiver = self._receivers.get(host)
        if receiver is None and self.hosts.name(host):
            receiver = Receiver(host, SenderInfo(host), may_have_alert=_is_broker(host))
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
            log.info("%s takes notices again", receiver.name)
        if receiver.may_have_alert:
            self._end(receiver.name)
        receiver.was_heard, receiver.may_have_alert = True, False
        receiver.tried_at = self._clock.monotonic()
        receiver.away_since, receiver.failures = None, 0
        receiver.probe_pause, receiver.alert_at = PROBE, None
        receiver.info = replace(receiver.info, error="")

    def _absent(self, receiver: Receiver, fault: DeliveryError) -> None:
        name = receiver.name
        now = receiver.tried_at = self._clock.monotonic()
        receiver.info = replace(receiver.info, error=words(fault))
        receiver.failures += 1
        receiver.returning = receiver.next_returning = 0
        if receiver.away_since is None:
            receiver.away_since = now
            log.warning("%s takes no notices: %s", name, words(fault).removeprefix(f"{name}: "))
            receiver.probe_at = now + PROBE * self._rng.uniform(0.8, 1.2)
        is_denied = isinstance(fault.__cause__, ConfigError)  # only somebody can change that
        is_long = now - receiver.away_since >= AWAY and receiver.failures >= _TRIES
        is_written = receiver.alert_at is not None and now - receiver.alert_at < _ONCE_MORE
        if (is_denied or is_long) and not is_written:
            receiver.alert_at, receiver.may_have_alert = now, True
            self._raise(name, fault)

    def _raise(self, name: str, fault: DeliveryError) -> None:
        text = without_backticks(f"{name} takes no notices: {words(fault)}")[:1000]
        self._alerts[name] = Alert("receiver_away", step=name, text=text), ""

    def _end(self, name: str) -> None:
        self._alerts[name] = Alert("receiver_away", step=name), "it takes notices again"


def _is_broker(host: str) -> bool:
    return is_address(host, KINDS)  # the address of a host may have a colon, too
