"""Puts the stage together: who directs, who watches, and the pages."""

import random
from pathlib import Path
from typing import Final

from makegood import Client

from .broker_watch import BrokerWatch
from .chaos import Chaos
from .customers import Customers
from .director import Director
from .processes import REPORT
from .scene import Watcher
from .stage_ladder import Ladder
from .stage_pages import Stage
from .visitor import Visitor
from .waits import Waits
from .world import Services

NAMES: Final = {"sqlite": "SQLite", "postgres": "PostgreSQL"}


class Show:
    """One show. ``director`` does what is pressed; there is one once it is staged."""

    director: Director

    def __init__(
        self,
        chaos: Chaos,
        customers: Customers,
        client: Client,
        services: Services,
        folder: Path,
        *,
        waits: Waits,
    ) -> None:
        self._chaos = chaos
        self.customers = customers
        self._client = client
        self.services = services
        self._folder = folder
        self._waits = waits

    def staged(self, *, seed: int, store: str, prefix: str, console: str) -> Stage:
        """Return the stage. ``prefix``: of the orders' ids; ``console``: where the console is, "" for nowhere."""
        rng = random.Random(f"{seed} stage")
        self.director = Director(
            self._chaos, self.customers, self.services, rng=rng, prefix=prefix,
            visitor=Visitor(self._client, self.customers, self._folder),
        )  # fmt: skip
        broker = self._chaos.broker
        watcher = Watcher(
            self.director, self.services, self._waits, report=self._folder / REPORT, console=console,
            title=f"seed {seed} · {NAMES[store]}", broker=BrokerWatch(broker, self._client) if broker else None,
        )  # fmt: skip
        return Stage(
            self.director,
            watcher,
            Ladder(self._client, self.director.visitor, self._chaos.places.values(), console),
        )
