"""The leader watch: raises an alert for each election that has had no leader for too long."""

import asyncio
import logging
import random

from makegood.actor.actor import Actor
from makegood.actor.setbacks import Setbacks
from makegood.base.clock import Clock
from makegood.errors import StoreUnavailableError
from makegood.model.messages import Alert
from makegood.store.protocol import Store

log = logging.getLogger("makegood.alerts")


class LeaderWatch(Actor):
    """Raises an alert when nobody has led for ``after`` seconds, as far as this process has seen.

    The next leader ends the alert. ``lease``: the name of the Supervisors' lease.
    """

    def __init__(self, store: Store, lease: str, *, after: float, clock: Clock, rng: random.Random) -> None:
        self._store = store
        self._lease = lease
        self._after = after
        self._clock = clock
        self._rng = rng
        self._since: float | None = None
        self._has_alert = False

    async def run(self) -> None:
        """Watch until cancelled."""
        setbacks = Setbacks("leader watch", self._store.alerts, self._rng)
        while True:
            await setbacks.attempt(self.once, self._away)
            await asyncio.sleep(self._after / 3 * self._rng.uniform(0.8, 1.2))

    def _away(self, fault: StoreUnavailableError) -> None:
        log.debug("cannot see who leads: %s", fault)  # that the store is away, others say
        self._since = None

    async def once(self) -> bool:
        """Look once; returns whether nobody leads for too long."""
        view = await self._store.leases.read(self._lease)
        now = self._clock.monotonic()
        if view is not None and view.held:
            self._since, self._has_alert = None, False
            return False
        self._since = now if self._since is None else self._since
        if now - self._since < self._after:
            return False
        if not self._has_alert:
            text = (
                f"no supervisor has led for {self._after:g} s: what is overdue is not found, and nobody frees the tasks of dead "
                "processes; start `makegood supervisor`"
            )
            await self._store.alerts.alert([Alert("no_leader", text=text)])
            self._has_alert = True
        return True
