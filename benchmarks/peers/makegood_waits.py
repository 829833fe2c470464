"""makegood under measurement while its tasks wait: all roles in this process. ``variant``: ``held`` or ``asleep``."""

from datetime import UTC, datetime
from importlib import metadata

import makegood as mg
from benchmarks import driving, waits
from makegood.cli import event_loop


class MakegoodWaits(waits.WaitingSubject):
    """makegood. A task that waits for less than ``linger`` is held in memory; any other sleeps in the store."""

    def __init__(self, cell: driving.Cell) -> None:
        super().__init__(cell)
        self.begun = begun = waits.Begun()
        self._app = app = mg.App("bench")
        desk = app.agent("desk", concurrency=100)
        self._answer = answer = app.signal("answer", str)

        @desk.action(complete_within="1m", undo=mg.NOTHING)
        async def step(name: str) -> str:
            begun.note(name)
            return name

        @desk.action(complete_within="1m", undo=mg.NOTHING)
        async def tick(moment: datetime) -> None:
            begun.note(f"{moment.timestamp():.0f}")

        @app.workflow()
        def asked(name: str) -> str:
            mg.wait_for(answer, timeout="10m")
            return step(name)

        @app.workflow()
        def sleeps(name: str, moment: datetime) -> str:
            mg.sleep_until(moment)
            return step(name)

        @app.workflow()
        def ticks(moment: datetime) -> None:
            tick(moment)

        self._asked, self._sleeps, self._ticks = asked, sleeps, ticks
        options = mg.Options(linger="1h") if cell.variant == "held" else mg.Options()
        self._node = mg.Node(app, cell.store, roles=("scheduler", "agent", "supervisor"), options=options)

    def version(self) -> str:
        """Return the version of the package."""
        return metadata.version("makegood")

    async def open(self) -> None:
        """Start the roles."""
        await self._node.start()

    async def close(self) -> None:
        """Stop them."""
        await self._node.stop()

    async def ask(self, name: str) -> mg.TaskHandle[str]:
        """Submit a task that waits for an answer."""
        return await self._node.client.submit(self._asked, name)

    async def send(self, address: mg.TaskHandle[str]) -> None:
        """Send the answer."""
        await address.signal(self._answer, "yes")

    async def sleep(self, name: str, moment: float) -> None:
        """Submit a task that sleeps until a moment."""
        await self._node.client.submit(self._sleeps, name, datetime.fromtimestamp(moment, UTC))

    async def schedule(self) -> None:
        """Have a task run at each second, by a cron text whose first field is seconds."""
        await self._node.client.schedule("ticks", self._ticks, mg.MOMENT, cron="* * * * * *")


if __name__ == "__main__":
    driving.main(MakegoodWaits, event_loop.run, waits.measure)
