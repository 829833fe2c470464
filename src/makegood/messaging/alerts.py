"""Alert delivery: every alert becomes a log line and, where a webhook is set, a signed message.

Each process with a Scheduler or a Supervisor runs an ``AlertSender``. The rows record what was reported, so
one of many processes reports an alert, and another continues when that one dies: logged once, by webhook at
least once. Every process also watches that there is a leader, because a leader cannot notice its own absence.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

import msgspec

from makegood.actor.actor import Actor
from makegood.actor.setbacks import Setbacks
from makegood.base import ids
from makegood.base.clock import iso
from makegood.base.webhook_signature import TIMEOUT
from makegood.errors import DeliveryError, StoreUnavailableError
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

_HELD: Final = 6 * TIMEOUT
"""Seconds after which another process sends an alert that one has taken and not recorded as sent.

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
        ways = [self.log] if self._webhook is None else [self.log, self.send]
        tasks = [asyncio.ensure_future(self._repeat(way)) for way in ways]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _repeat(self, once: Callable[[], Awaitable[bool]]) -> None:
        setbacks = Setbacks("alert sender", self._store.alerts, self._rng)
        while True:
            try:
                has_more = await once()
            except StoreUnavailableError as away:
                log.warning("the store is away; alerts are sent when it is back: %s", away)
                has_more = False
            except Exception as defect:  # noqa: BLE001 - the other alerts are reported
                await asyncio.sleep(await setbacks.met(defect))
                has_more = False
            else:
                await setbacks.over()
            if not has_more:
                await asyncio.sleep(self._pause * self._rng.uniform(0.8, 1.2))

    async def once(self) -> bool:
        """Log some alerts and send some; returns whether there may be more."""
        return any([await self.log(), await self.send()])

    async def log(self) -> bool:
        """Log some alerts; returns whether there may be more."""
        tellings = await self._store.alerts.unlogged(100)
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
        waiting = await self._store.alerts.untold(_HELD, AT_ONCE)
        if waiting:
            await self._send(self._webhook, waiting)
        return len(waiting) == AT_ONCE

    async def _send(self, webhook: AlertPoster, waiting: Sequence[Telling]) -> None:
        waits = await asyncio.gather(*(self._one(webhook, telling) for telling in waiting))
        later = {telling.alert.id: wait for telling, wait in zip(waiting, waits, strict=True) if wait}
        await self._store.alerts.told([t for t in waiting if t.alert.id not in later], later)

    async def _one(self, webhook: AlertPoster, telling: Telling) -> float:
        """Report that an alert was raised, has ended, or both; returns 0, or seconds until the next try."""
        alert = telling.alert
        try:
            for what in ("raised", "ended"):
                if telling.is_start if what == "raised" else alert.ended is not None:
                    message_id, body = event(alert, what, self._store.identity)
                    await webhook.post(message_id, body, kind="application/cloudevents+json")
        except DeliveryError as fault:
            wait = min(FIRST_PAUSE * 2.0 ** min(telling.tries, 30), LONGEST_PAUSE)
            wait *= self._rng.uniform(0.9, 1.1)
            log.warning("alert %d was not delivered, once more in %.0f s: %s", alert.id, wait, fault)
            return wait
        except UNREADABLE:  # it can be sent neither now nor later
            log.exception("alert %s is unreadable, and is not sent", alert.id)
        except Exception:  # a defect: the other alerts that were sent with it must not be sent again for it
            log.exception("alert %d was not delivered", alert.id)
            return LONGEST_PAUSE
        return 0.0


def write(telling: Telling) -> None:
    """Write an alert into the log: as text for people, its parts as fields for machines."""
    alert = telling.alert
    of = f" task {ids.show(alert.task)}" if alert.task else ""
    kind = alert.kind
    if telling.is_start:
        level = logging.WARNING if alert.kind in _WARNINGS else logging.ERROR
        log.log(level, "alert %d %s%s: %s", alert.id, kind, of, alert.text, extra=fields(alert, "raised"))
    if alert.ended is not None:
        log.info("alert %d %s%s ended: %s", alert.id, kind, of, alert.ended_why, extra=fields(alert, "ended"))


def fields(alert: AlertView, event: str) -> dict[str, Any]:
    """Return the fields of an alert's structured log line.

    They hold no payloads: the text names what was wrong, not the values.
    """
    return {
        "event": f"alert.{event}",
        "alert": alert.id,
        "alert_kind": alert.kind,
        "task": ids.show(alert.task) if alert.task else None,
        "step": alert.step or None,
    }


def event(alert: AlertView, what: str, store: Identity) -> tuple[str, bytes]:
    """Return a message's id and its body: a CloudEvent. The id is the same at every try."""
    message_id = f"{store.store_id}-alert-{alert.id}-{what}"
    task = ids.show(alert.task) if alert.task else None
    at = alert.at if what == "raised" or alert.ended is None else alert.ended
    document = {
        "specversion": "1.0",
        "id": message_id,
        "type": f"dev.makegood.alert.{what}.v1",
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
            "why": alert.ended_why if what == "ended" else "",
        },
    }
    return message_id, msgspec.json.encode(document)
