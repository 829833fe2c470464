"""Alert delivery: every alert becomes a log line and, where a webhook is set, a signed message.

Each process with a Scheduler or a Supervisor runs an ``AlertSender``. The rows record what was reported, so
one of many processes reports an alert, and another continues when that one dies: logged once, by webhook at
least once. Every process also watches that there is a leader, because a leader cannot notice its own absence.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from makegood.actor.actor import Actor
from makegood.actor.setbacks import Setbacks
from makegood.base import ids
from makegood.base.cancelling import cancel_and_wait
from makegood.base.clock import iso
from makegood.base.webhook_signature import TIMEOUT
from makegood.errors import DeliveryError
from makegood.payload.codec import UNREADABLE
from makegood.store.protocol import Store
from makegood.store.records import Identity
from makegood.store.views import AlertView, Telling

log = logging.getLogger("makegood.alerts")

AT_ONCE: Final = 5
"""Webhook messages under way at the same time."""

FIRST_PAUSE: Final = 10.0
LONGEST_PAUSE: Final = 3600.0
"""Seconds until a message that was not accepted is sent again: doubled each time, up to the longest."""

_TAKEN_FOR: Final = 6 * TIMEOUT
"""Seconds for which an alert belongs to the process that has taken it: then another one may send it.

That is longer than two posts and a commit take.
"""

_WARNINGS: Final = frozenset({"step_gave_up", "late_undo", "test"})
"""Kinds of alert after which the engine continues by itself; a task that is held or stuck gets an alert of
its own.
"""


class AlertPoster(Protocol):
    """Sends a message once: ``webhook.Webhook``."""

    async def post(self, message_id: str, body: bytes, *, kind: str) -> None:
        """Send it; raises ``DeliveryError`` when it was not taken."""


class AlertSender(Actor):
    """Logs alerts and sends them to ``webhook``, if there is one.

    ``pause``: seconds between reads of the store.

    The log never waits for the sending. An alert that this process has taken and cannot send is sent by
    another one a while later.
    """

    def __init__(
        self, store: Store, webhook: AlertPoster | None, *, pause: float, rng: random.Random
    ) -> None:
        self._store = store
        self._webhook = webhook
        self._pause = pause
        self._rng = rng

    async def run(self) -> None:
        """Log and send what there is, until cancelled."""
        turns = [self.log] if self._webhook is None else [self.log, self.send]
        tasks = [asyncio.ensure_future(self._repeat(turn)) for turn in turns]
        try:
            await asyncio.gather(*tasks)
        finally:
            await cancel_and_wait(*tasks)

    async def _repeat(self, turn: Callable[[], Awaitable[bool]]) -> None:
        setbacks = Setbacks("alert sender", self._store.alerts, self._rng)
        while True:
            away = partial(log.warning, "the store is away; alerts are sent when it is back: %s")
            if not await setbacks.attempt(turn, away):
                await asyncio.sleep(self._pause * self._rng.uniform(0.8, 1.2))

    async def once(self) -> bool:
        """Log some alerts and send some; returns whether there may be more."""
        return any([await self.log(), await self.send()])

    async def log(self) -> bool:
        """Log some alerts; returns whether there may be more."""
        tellings = await self._store.alerts.take_unlogged(100)
        for telling in tellings:
            try:
                write(telling)
            except UNREADABLE:
                log.exception("alert %s is unreadable", telling.alert.id)
        return len(tellings) == 100

    async def send(self) -> bool:
        """Send some alerts to the webhook, at most ``AT_ONCE`` at a time; returns whether there may be
        more.
        """
        if self._webhook is None:
            return False
        waiting = await self._store.alerts.untold(_TAKEN_FOR, AT_ONCE)
        if waiting:
            await self._send(self._webhook, waiting)
        return len(waiting) == AT_ONCE

    async def _send(self, webhook: AlertPoster, waiting: Sequence[Telling]) -> None:
        pauses = await asyncio.gather(*(self._deliver(webhook, telling) for telling in waiting))
        later = {telling.alert.id: pause for telling, pause in zip(waiting, pauses, strict=True) if pause}
        await self._store.alerts.told([t for t in waiting if t.alert.id not in later], later)

    async def _deliver(self, webhook: AlertPoster, telling: Telling) -> float:
        """Report that an alert was raised, has ended, or both; returns 0, or seconds until the next try."""
        alert = telling.alert
        changes = ["raised"] if telling.is_start else []
        if alert.ended is not None:
            changes.append("ended")
        try:
            for change in changes:
                try:
                    message_id, body = event(alert, change, self._store.identity)
                except UNREADABLE:  # it can be sent neither now nor later
                    log.exception("alert %s is unreadable, and is not sent", alert.id)
                    return 0.0
                await webhook.post(message_id, body, kind="application/cloudevents+json")
        except DeliveryError as fault:
            pause = min(FIRST_PAUSE * 2.0 ** min(telling.tries, 30), LONGEST_PAUSE)
            pause *= self._rng.uniform(0.9, 1.1)
            log.warning("alert %d was not delivered, once more in %.0f s: %s", alert.id, pause, fault)
            return pause
        except Exception:  # a defect: the other alerts that were sent with it must not be sent again for it
            log.exception("alert %d was not delivered", alert.id)
            return LONGEST_PAUSE
        return 0.0


def write(telling: Telling) -> None:
    """Write an alert into the log: as text for people, its parts as fields for machines."""
    alert = telling.alert
    subject = f" task {ids.show(alert.task)}" if alert.task else ""
    kind = alert.kind
    if telling.is_start:
        level = logging.WARNING if alert.kind in _WARNINGS else logging.ERROR
        log.log(
            level, "alert %d %s%s: %s", alert.id, kind, subject, alert.text, extra=fields(alert, "raised")
        )
    if alert.ended is not None:
        log.info(
            "alert %d %s%s ended: %s", alert.id, kind, subject, alert.ended_why, extra=fields(alert, "ended")
        )


def fields(alert: AlertView, change: str) -> dict[str, Any]:
    """Return the fields of an alert's structured log line. ``change``: "raised" or "ended".

    They hold no payloads: the text names what was wrong, not the values.
    """
    return {
        "event": f"alert.{change}",
        "alert": alert.id,
        "alert_kind": alert.kind,
        "task": ids.show(alert.task) if alert.task else None,
        "step": alert.step or None,
    }


def event(alert: AlertView, change: str, store: Identity) -> tuple[str, bytes]:
    """Return a message's id and its body: a CloudEvent. The id is the same at every try.

    ``change``: "raised" or "ended".
    """
    message_id = f"{store.store_id}-alert-{alert.id}-{change}"
    task = ids.show(alert.task) if alert.task else None
    at = alert.at if change == "raised" or alert.ended is None else alert.ended
    document = {
        "specversion": "1.0",
        "id": message_id,
        "type": f"dev.makegood.alert.{change}.v1",
        "source": f"/makegood/{store.store_id}",
        "time": iso(at),
        "datacontenttype": "application/json",
        **({"subject": task} if task else {}),
        "data": {
            "alert": alert.id,
            "kind": alert.kind,
            "task": task,
            "step": alert.step or None,
            "text": alert.text,
            "why": alert.ended_why if change == "ended" else "",
        },
    }
    return message_id, msgspec.json.encode(document)
