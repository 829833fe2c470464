"""The demo: orders made good while the processes that make them are killed.

``makegood demo`` (or ``make demo``) starts the remote services, schedulers, agents and supervisors as processes of
their own, places orders, kills and stops processes at moments drawn from a seed, and ends with an audit: what the
services' own books say against what the shop was told. Exit code 0: every order ended whole and the books balance.

- ``processes.py``  the process wall (``tether.py``: no process outlives the demo)
- ``chaos.py``      who is hit, and how long it takes until nobody misses them
- ``customers.py``  orders placed, and their ends
- ``display.py``    what one sees; ``report.py`` the numbers at the end
"""

import argparse
import asyncio
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from makegood import Client, StoreUnavailableError

from .auditor import AuditError, audit
from .chaos import Chaos, Event, plan
from .customers import Customers, wanted
from .display import Scene, Screen, screen
from .processes import ProcessError, Wall, posts, private_postgres
from .remote import SERVICES_VARIABLE
from .report import Report, count_outcomes
from .world import Services, ServicesError

POSTGRES_VARIABLE: Final = "MAKEGOOD_DEMO_POSTGRES"
SETTINGS: Final = {
    "supervise_every": "500ms", "lease": "2s", "late_after": "300ms", "heartbeat": "400ms", "dead_after": "2s", "poll_every": "500ms",
    "drain": "3s", "log_level": "info",
}  # fmt: skip
"""Short, so that one sees things heal; in earnest the defaults are right."""
LIFE: Final = 2.0
FILE: Final = "sqlite:///"
RATE: Final = 10.0
"""Orders a second, on average."""
AT_LEAST: Final = 8.0
"""Seconds of placing at least, so that the kills do not all fall together."""
PATIENCE: Final = 120.0
"""Seconds after the last kill in which every order must come to rest."""
READY_WITHIN: Final = 45.0
DRAW_EVERY: Final = 0.25
INTERRUPTED: Final = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; return the exit code: 0 the books balance and nothing is lost, 1 they do not, 130 interrupted.

    Raises makegood's own errors, for example when the store cannot be reached.
    """
    options = parse(arguments)
    shown = screen(as_json=options.json)
    folder = Path(tempfile.mkdtemp(prefix="makegood-demo-"))
    code = 1
    try:
        with ended_as_by_hand():
            report = run(options, folder, shown)
        shown.report(report)
        code = 0 if report.well else 1
    except (ProcessError, ServicesError, AuditError) as trouble:
        shown.close()
        print(f"makegood demo: {trouble}", file=sys.stderr)
    except KeyboardInterrupt:
        shown.close()
        code = INTERRUPTED
        print("makegood demo: interrupted; every process that it started has ended", file=sys.stderr)
    finally:
        shown.close()
        if options.keep or code == 1:
            shown.note(f"kept for a look: {folder}")
        else:
            shutil.rmtree(folder)
    return code


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; exits with 2 for what cannot be meant."""
    parser = argparse.ArgumentParser(
        prog="makegood demo", description="Orders made good while the processes that make them are killed."
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--store", metavar="URL", help="the state store; default: a fresh SQLite file")
    where.add_argument(
        "--postgres",
        action="store_true",
        help=f"a private PostgreSQL, or the one that {POSTGRES_VARIABLE} names",
    )
    for name, default, least, text in (
        ("orders", 200, 1, "orders to place"),
        ("schedulers", 2, 1, "scheduler processes"),
        ("agents", 3, 1, "agent processes"),
        ("supervisors", 2, 1, "supervisor processes"),
        ("kills", 14, 0, "processes to kill"),
    ):
        parser.add_argument(
            f"--{name}", type=_at_least(least), default=default, metavar="N", help=f"{text} ({default})"
        )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="what is ordered, fails and is killed; default: chance"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per line, the report last")
    parser.add_argument("--keep", action="store_true", help="keep the folder with store, books and logs")
    options = parser.parse_args(arguments)
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1_000_000)
    return options


def _at_least(least: int) -> Any:
    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{value}: at least {least}")
        return value

    return number


@contextmanager
def ended_as_by_hand() -> Iterator[None]:
    """Take SIGTERM and SIGHUP for Ctrl-C, so that there is one way to be ended, which clears up."""
    before = {
        number: signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))
        for number in (signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What went wrong first, out of the groups in groups."""
    found = group.exceptions[0]
    return first(found) if isinstance(found, BaseExceptionGroup) else found


def run(options: argparse.Namespace, folder: Path, shown: Screen) -> Report:
    """Start everything, play, stop everything, audit."""
    begun = time.monotonic()
    with ExitStack() as stack:
        url = store_of(options, folder, stack)
        kind = urlsplit(url).scheme.removesuffix("ql")
        shown.note(opening(options, kind, folder))
        services = stack.enter_context(Services(folder / "books.db", seed=options.seed, faults="rough"))
        wall = stack.enter_context(
            Wall(
                posts(schedulers=options.schedulers, agents=options.agents, supervisors=options.supervisors),
                folder,
                settings={**SETTINGS, "store": url},
                more={SERVICES_VARIABLE: services.url},
            )
        )
        return asyncio.run(Play(options, folder, shown, (url, kind)).run(wall, services, begun))


def opening(options: argparse.Namespace, kind: str, folder: Path) -> str:
    """Say what is played. Where the logs are is said only if they are there afterwards; of a failure it is said at its end."""
    said = f"{options.orders} orders on {kind}, {options.kills} kills, seed {options.seed}"
    return f"{said}; logs in {folder}" if options.keep else said


def store_of(options: argparse.Namespace, folder: Path, stack: ExitStack) -> str:
    """Return the store's URL; a private PostgreSQL is started, and ends with ``stack``."""
    if options.postgres:
        return os.environ.get(POSTGRES_VARIABLE) or stack.enter_context(private_postgres(folder))
    given = options.store or f"sqlite:///{folder / 'store.db'}"
    if given.startswith(FILE) and len(given) > len(FILE):
        return FILE + str(Path(given.removeprefix(FILE)).absolute())  # the processes run in another folder
    return str(given)


class Play:
    """One run, from the first process to the report."""

    def __init__(
        self, options: argparse.Namespace, folder: Path, shown: Screen, store: tuple[str, str]
    ) -> None:
        self._options = options
        self._folder = folder
        self._shown = shown
        self._url, self._store = store
        self._complaints: list[str] = []

    async def run(self, wall: Wall, services: Services, begun: float) -> Report:
        """Play; returns the report. Whatever was started is ended by whoever handed it in."""
        options = self._options
        async with Client(self._url, migrate=True) as client:
            customers = Customers(client)
            chaos = Chaos(wall, services, client, random.Random(f"{options.seed} chaos"), self._tell)
            self._scene = Scene(
                options.orders, chaos.score, wall=[chaos.world, *wall.places.values()], begun=begun
            )
            for name in wall.places:
                wall.start(name)
            await self._ready(wall, client)
            try:
                async with asyncio.TaskGroup() as group:
                    watching = group.create_task(self._watch(chaos, customers))
                    await self._orders_under_fire(chaos, customers)
                    await self._all_at_rest(customers)
                    watching.cancel()
            except ExceptionGroup as several:
                raise first(several) from None
            finally:
                await customers.leave()
            for name in await customers.without_alert():
                self._complaints.append(f"order {name} is in error, and there is no alert of it")
            await self._draw(customers)
        self._shown.close()
        late = await asyncio.to_thread(wall.end)
        if late:
            self._shown.note(f"did not end in time on SIGTERM, and were killed: {', '.join(late)}")
        if not await asyncio.to_thread(services.quiet):
            self._complaints.append("the services were still at work 30 s after the last order's end")
        told = list(customers.told.values())
        customers.write(self._folder / "told.jsonl")
        return Report(
            self._store, time.monotonic() - begun, options.orders, count_outcomes(told), chaos.score,
            audit(services.books, told), tuple(self._complaints), customers.notes(),
        )  # fmt: skip

    async def _ready(self, wall: Wall, client: Client) -> None:
        """Wait until every process has registered in the store. Raises ``ProcessError`` when one ends, or takes too long."""
        deadline = time.monotonic() + READY_WITHIN
        while True:
            if ended := wall.ended():
                place, code = ended[0]
                raise ProcessError(f"{place.name} ended with code {code}:\n{wall.last_words(place.name)}")
            here = {node.info.pid for node in await client.store.nodes.views() if node.remaining > 0}
            missing = [place.name for place in wall.places.values() if place.pid not in here]
            if not missing:
                return
            if time.monotonic() > deadline:
                words = wall.last_words(missing[0])
                raise ProcessError(f"{', '.join(missing)} did not start within {READY_WITHIN:g} s:\n{words}")
            self._shown.show(self._scene)
            await asyncio.sleep(0.1)

    async def _orders_under_fire(self, chaos: Chaos, customers: Customers) -> None:
        """Place all orders while blow after blow falls."""
        options = self._options
        prefix = "o-" if options.store is None and not options.postgres else f"{int(time.time()):x}-"
        orders = wanted(options.orders, random.Random(f"{options.seed} orders"), prefix)
        span = max(AT_LEAST if options.kills else 0.0, options.orders / RATE)
        blows = plan(options.kills, random.Random(f"{options.seed} blows"), life=LIFE)
        async with asyncio.TaskGroup() as group:
            group.create_task(customers.place(orders, span, random.Random(f"{options.seed} moments")))
            group.create_task(chaos.run(blows, span))

    async def _all_at_rest(self, customers: Customers) -> None:
        """Wait, within bounds, until every order's end is known; complain of those that are open."""
        if left := await customers.all_told(PATIENCE):
            for line in await customers.where(left[:20]):
                self._complaints.append(f"not at rest {PATIENCE:g} s after the last kill: {line}")
            if len(left) > 20:
                self._complaints.append(f"and {len(left) - 20} more are not at rest")

    async def _watch(self, chaos: Chaos, customers: Customers) -> None:
        """Draw, and replace processes that end of themselves."""
        while True:
            chaos.mend()
            self._scene.leader = await chaos.leader()
            await self._draw(customers)
            await asyncio.sleep(DRAW_EVERY)

    async def _draw(self, customers: Customers) -> None:
        scene = self._scene
        scene.placed = len(customers.told)
        with suppress(StoreUnavailableError):  # the last known counts stand until the store is back
            scene.states = await customers.states()
        self._shown.show(scene)

    def _tell(self, event: Event) -> None:
        self._scene.events.append((self._scene.seconds, event))
        self._shown.event(self._scene, event)
