"""The demo: orders made good while the processes that make them are killed.

``makegood demo`` (or ``make demo``) starts the whole system as processes of their own: the shop, which sends orders to the
submission process and hears of them in its private queue; schedulers, agents, supervisors; and the remote services. In a
terminal, with the extra ``[console]``, the console and an auditor run beside them, and the *stage* is a page on which you kill
and spoil what you like, until Ctrl-C. Otherwise (``--headless``) orders are placed, and processes killed and stopped, at
moments drawn from a seed. Both end with an audit: what the services' own books say against what the shop was told. Exit
code 0: every order ended whole and the books balance.

- ``processes.py``  the process wall (``tether.py``: no process outlives the demo)
- ``chaos.py``      who is hit, and how long it takes until nobody misses them
- ``customers.py``  orders placed, and their ends
- ``approver.py``   who answers orders that are too large to ship without a yes
- ``waits.py``      what open orders wait for, in a line
- ``display.py``    what one sees in a terminal; ``stage`` in a browser; ``report.py`` the numbers at the end
"""

import argparse
import asyncio
import os
import random
import secrets
import shutil
import signal
import sys
import tempfile
import time
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from makegood import Client, StoreUnavailableError, TaskInError, TaskUndone, WaitExpiredError
from makegood.brokers import open_sender, targets_of
from makegood.errors import ConfigError
from makegood.transactions import Caller

from .auditor import AuditError, audit
from .chaos import Chaos, Event, plan
from .customers import Customers, wanted
from .display import Scene, Screen, screen
from .free_port import free_port
from .private_servers import SERVERS, PrivateServer
from .processes import REGISTERED, ProcessError, Wall, posts, private_postgres, shop_posts, watching_posts
from .remote import SERVICES_VARIABLE
from .report import Passage, Report, count_approvals, count_outcomes
from .shop import NOTICES_VARIABLE, ORDERS_VARIABLE, TABLE, settle_now, shop
from .waits import QUEUE, Waits, starting
from .world import Services, ServicesError

POSTGRES_VARIABLE: Final = "MAKEGOOD_DEMO_POSTGRES"
SETTINGS: Final = {
    "supervise_every": "500ms", "lease": "2s", "late_after": "300ms", "heartbeat": "400ms", "dead_after": "2s", "poll_every": "500ms",
    "drain": "3s", "linger": "2s", "log_level": "info",
}  # fmt: skip
"""Short, so that one sees things heal; in earnest the defaults are right."""
LIFE: Final = 2.0
FILE: Final = "sqlite:///"
ORDERS: Final = 200
KILLS: Final = 14
KILL_EVERY: Final = 4.0
RATE: Final = 10.0
"""Orders a second, on average."""
AT_LEAST: Final = 8.0
"""Seconds of placing at least, so that the kills do not all fall together."""
PATIENCE: Final = 120.0
"""Seconds after the last kill in which every order must come to rest."""
READY_WITHIN: Final = 90.0
"""Seconds without a further process that has started."""
DRAW_EVERY: Final = 0.25
INTERRUPTED: Final = 130
EXTRA: Final = ("starlette", "jinja2", "uvicorn")
HOW_TO_SEE: Final = "the stage, a page in your browser, needs more: pip install 'makegood[console]'"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; return the exit code: 0 the books balance and nothing is lost, 1 they do not, 130 interrupted.

    Raises makegood's own errors, for example when the store cannot be reached.
    """
    options = parse(arguments)
    options.stage, note = wants_stage(options)
    if options.broker:
        require_broker(options.broker)
    display = screen(as_json=options.json)
    folder = Path(tempfile.mkdtemp(prefix="makegood-demo-"))
    code = 1
    if note:
        display.note(note)
    try:
        with ended_as_by_hand():
            report = run(options, folder, display)
        display.report(report)
        code = 0 if report.well else 1
    except (ProcessError, ServicesError, AuditError) as trouble:
        display.close()
        print(f"makegood demo: {trouble}", file=sys.stderr)
    except KeyboardInterrupt:
        display.close()
        code = INTERRUPTED
        print("makegood demo: interrupted; every process that it started has ended", file=sys.stderr)
    finally:
        display.close()
        if options.keep or code == 1:
            display.note(f"the logs and books of this run are in {folder}")
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
    parser.add_argument(
        "--broker", choices=SERVERS, help="orders come through a private one, and notices go back through it"
    )
    for name, least, text in (
        ("orders", 1, f"orders to place, without the stage ({ORDERS})"),
        ("kills", 0, f"processes to kill, without the stage ({KILLS})"),
        ("schedulers", 1, "scheduler processes (2)"),
        ("agents", 1, "agent processes (two for each service)"),
        ("supervisors", 1, "supervisor processes (2)"),
    ):
        parser.add_argument(f"--{name}", type=_at_least(least), metavar="N", help=text)
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--headless", action="store_true", help="in the terminal, without the stage")
    group.add_argument("--stage", action="store_true", help="with the stage, even if nobody is at a terminal")
    parser.add_argument(
        "--port", type=_at_least(0), default=0, metavar="N", help="the stage's port (any that is free)"
    )
    parser.add_argument(
        "--no-browser", dest="browser", action="store_false", default=None, help="open no browser"
    )
    parser.add_argument("--seconds", type=_at_least(1), metavar="N", help="end after so many seconds")
    parser.add_argument("--chaos", action="store_true", help="kill a random process every few seconds")
    parser.add_argument(
        "--seed", type=int, metavar="N", help="what is ordered, fails and is killed; default: chance"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per line, the report last")
    parser.add_argument("--keep", action="store_true", help="keep the folder with store, books and logs")
    options = parser.parse_args(arguments)
    options.planned = options.orders is not None or options.kills is not None
    if options.stage and options.planned:
        parser.error("--orders and --kills are for a run without the stage")
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1_000_000)
    options.browser = has_browser() if options.browser is None else options.browser
    seconds, chaos = options.seconds, options.chaos
    if options.orders is None:
        options.orders = ORDERS if seconds is None else max(1, round(seconds * RATE))
    if options.kills is None:
        options.kills = KILLS if seconds is None else round(seconds / KILL_EVERY) if chaos else 0
    options.schedulers, options.supervisors = options.schedulers or 2, options.supervisors or 2
    return options


def wants_stage(options: argparse.Namespace) -> tuple[bool, str]:
    """Return whether the stage is shown, and what to say about that.

    It is where somebody asked for it, or sits at a terminal and asked for no planned run. Raises makegood's
    ``ConfigError`` if it was asked for and its extra is not installed.
    """
    if options.headless or options.json * (not options.stage) or options.planned:
        return False, ""
    if not options.stage and not sys.stdout.isatty():
        return False, ""
    if all(find_spec(name) for name in EXTRA):
        return True, ""
    if options.stage:
        raise ConfigError(HOW_TO_SEE)
    return False, HOW_TO_SEE


def has_browser() -> bool:
    """Whether a browser can be opened here: a desk with a screen, or a system that always has one."""
    return sys.stdout.isatty() and (
        sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    )


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


@contextmanager
def until_interrupted(end: asyncio.Event) -> Iterator[None]:
    """Take the first Ctrl-C as the wish to end; the second one interrupts as ever."""
    loop = asyncio.get_running_loop()

    def interrupted() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        end.set()

    loop.add_signal_handler(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What went wrong first, out of the groups in groups."""
    error = group.exceptions[0]
    return first(error) if isinstance(error, BaseExceptionGroup) else error


def run(options: argparse.Namespace, folder: Path, display: Screen) -> Report:
    """Start everything, play, stop everything, audit."""
    start = time.monotonic()
    with ExitStack() as stack:
        url = store_of(options, folder, stack)
        kind = urlsplit(url).scheme.removesuffix("ql")
        display.note(opening(options, kind, folder))
        faults = "" if options.stage else "rough"
        broker = start_broker(options.broker, stack) if options.broker else None
        services = stack.enter_context(
            Services(folder / "books.db", seed=options.seed, faults=faults, bound_to_starter=True)
        )
        queue = f"shop-{folder.name.rpartition('-')[2]}"  # the store may have been used before
        all_posts = posts(
            schedulers=options.schedulers, agents=options.agents, supervisors=options.supervisors
        )
        all_posts += shop_posts(folder, queue, options.seed)
        own: dict[str, str] = {}
        more = {SERVICES_VARIABLE: services.url}
        if broker is not None:
            notices = f"{broker.kind}:main/notices"
            own |= {"brokers_main": broker.url, "reply_to_brokers": notices}
            more |= {
                ORDERS_VARIABLE: f"{broker.kind}:main/orders?queue={QUEUE}{broker.parameters}",
                NOTICES_VARIABLE: notices,
            }
        if options.stage:
            options.console_port = free_port()
            # Its own, and the same however often the console is killed: that of the user's consoles opens more than a demo.
            own["console_token"] = options.console_token = secrets.token_urlsafe(32)
            all_posts += watching_posts(folder, services.books, options.console_port)
        wall = stack.enter_context(
            Wall(
                all_posts,
                folder,
                settings={**SETTINGS, "store": url, **own},
                more=more,
            )
        )
        return asyncio.run(Play(options, folder, display, (url, kind), broker).run(wall, services, start))


def opening(options: argparse.Namespace, kind: str, folder: Path) -> str:
    """Say what is played. Where the logs are is said only if they are there afterwards; of a failure it is said at its end."""
    through = f" through {SERVERS[options.broker].title}" if options.broker else ""
    text = f"{options.orders} orders{through} on {kind}, {options.kills} kills, seed {options.seed}"
    if options.stage:
        text = f"the order system{through} on {kind}, seed {options.seed}"
    return f"{text}; logs in {folder}" if options.keep else text


def require_broker(name: str) -> None:
    """Raise ``ConfigError``, which says what to install, if this machine lacks the broker's program or its client."""
    server = SERVERS[name]
    server.require()
    open_sender(targets_of({"main": f"{server.kind}://127.0.0.1"})["main"])


def start_broker(name: str, stack: ExitStack) -> PrivateServer:
    """Start a private broker with places for orders and notices; it ends with ``stack``."""
    broker = SERVERS[name]()
    stack.callback(broker.close)
    broker.start()
    broker.declare("orders", "notices")
    return broker


def store_of(options: argparse.Namespace, folder: Path, stack: ExitStack) -> str:
    """Return the store's URL; a private PostgreSQL is started, and ends with ``stack``."""
    if options.postgres:
        return os.environ.get(POSTGRES_VARIABLE) or stack.enter_context(private_postgres(folder))
    url = options.store or f"sqlite:///{folder / 'store.db'}"
    if url.startswith(FILE) and len(url) > len(FILE):
        return FILE + str(Path(url.removeprefix(FILE)).absolute())  # the processes run in another folder
    return str(url)


class Play:
    """One run, from the first process to the report."""

    def __init__(
        self,
        options: argparse.Namespace,
        folder: Path,
        display: Screen,
        store: tuple[str, str],
        broker: PrivateServer | None,
    ) -> None:
        self._options = options
        self._folder = folder
        self._shown = display
        self._url, self._store = store
        self._broker = broker
        self._complaints: list[str] = []
        self._show: Any = None

    async def run(self, wall: Wall, services: Services, start: float) -> Report:
        """Play; returns the report. Whatever was started is ended by whoever handed it in."""
        options = self._options
        async with Client(self._url, migrate=True) as client:
            await client.store.transact(_make_tables, waits=False)
            customers = Customers(client, self._folder, self._tell)
            chaos = Chaos(
                wall,
                services,
                client,
                random.Random(f"{options.seed} chaos"),
                self._tell,
                broker=self._broker,
            )
            title = self._broker.title if self._broker else ""
            self._waits = Waits(client, customers, chaos.places, broker=title)
            self._scene = Scene(
                0 if options.stage else options.orders,
                chaos.score,
                wall=list(chaos.places.values()),
                begun=start,
            )
            for name in wall.places:
                wall.start(name)
            await self._ready(wall, client)
            try:
                async with asyncio.TaskGroup() as group:
                    watching = group.create_task(self._watch(chaos, customers))
                    if options.stage:
                        await self._on_stage(chaos, customers, client, services)
                    else:
                        await self._orders_under_fire(chaos, customers, client)
                    await self._all_at_rest(customers)
                    watching.cancel()
            except ExceptionGroup as several:
                raise first(several) from None
            for name in await customers.without_alert():
                self._complaints.append(f"order {name} is in error, and there is no alert of it")
            passage = await self._passage(customers)
            await self._draw(customers)
        self._shown.close()
        late = await asyncio.to_thread(wall.end)
        if late:
            self._shown.note(f"did not end in time on SIGTERM, and were killed: {', '.join(late)}")
        if not await asyncio.to_thread(services.quiet):
            self._complaints.append("the services were still at work 30 s after the last order's end")
        customers.hear()  # the shop may have heard more while it ended
        outcomes = list(customers.told.values())
        customers.write(self._folder / "told.jsonl")
        return Report(
            self._store, time.monotonic() - start, len(customers.orders), count_outcomes(outcomes), chaos.score,
            audit(services.books, outcomes), tuple(self._complaints), customers.notes(), count_approvals(outcomes), passage,
        )  # fmt: skip

    async def _passage(self, customers: Customers) -> Passage | None:
        """Count what came through the broker, None without one; complain of what came twice or not at all."""
        if self._broker is None:
            return None
        passage = await customers.passage(self._broker.title)
        self._complaints += passage.complaints()
        return passage

    async def _ready(self, wall: Wall, client: Client) -> None:
        """Wait until every process has registered in the store.

        Raises ``ProcessError`` when one ends, or when for ``READY_WITHIN`` seconds none has registered.
        """
        deadline, before = time.monotonic() + READY_WITHIN, 0
        while True:
            if exits := wall.ended():
                place, code = exits[0]
                raise ProcessError(f"{place.name} ended with code {code}:\n{wall.last_words(place.name)}")
            here = {node.info.pid for node in await client.store.nodes.views() if node.remaining > 0}
            places = [place for place in wall.places.values() if place.role in REGISTERED]
            missing = [place.name for place in places if place.pid not in here]
            if not missing:
                return
            if len(missing) != before:
                deadline, before = time.monotonic() + READY_WITHIN, len(missing)
            if time.monotonic() > deadline:
                raise wall.late(missing, READY_WITHIN)
            self._scene.waits = starting(missing, len(places))
            self._shown.show(self._scene)
            await asyncio.sleep(0.1)

    async def _orders_under_fire(self, chaos: Chaos, customers: Customers, client: Client) -> None:
        """Place all orders while blow after blow falls, and have a night in the middle."""
        options = self._options
        orders = wanted(options.orders, random.Random(f"{options.seed} orders"), self._prefix())
        span = options.seconds or max(AT_LEAST if options.kills else 0.0, options.orders / RATE)
        rng = random.Random(f"{options.seed} blows")
        blows = plan(options.kills, rng, life=LIFE, broker=self._broker is not None)
        async with asyncio.TaskGroup() as group:
            group.create_task(customers.place(orders, span, random.Random(f"{options.seed} moments")))
            group.create_task(chaos.run(blows, span))
            group.create_task(self._night(client, span / 2))

    async def _night(self, client: Client, after: float) -> None:
        """Trigger the nightly settlement after so many seconds, and wait for its end."""
        await asyncio.sleep(after)
        deadline = time.monotonic() + READY_WITHIN
        while not await client.schedules(shop.name) and time.monotonic() < deadline:  # noqa: ASYNC110 - another process rings no event here
            await asyncio.sleep(0.1)  # an agent writes it once it has registered
        task = await settle_now(client, "the night of the demo")
        self._tell(Event("settled", "payments", 0, "the nightly settlement was triggered"))
        try:
            cents = await task.result(timeout=PATIENCE)
            self._tell(Event("settled", "payments", 0, f"{cents / 100:,.2f} paid out for the day"))
        except TaskUndone as outcome:
            self._tell(Event("settled", "payments", 0, f"the settlement was undone: {outcome.cause}"))
        except (TaskInError, WaitExpiredError) as trouble:
            self._complaints.append(f"the nightly settlement: {trouble}")

    async def _on_stage(self, chaos: Chaos, customers: Customers, client: Client, services: Services) -> None:
        """Serve the stage, and do what its buttons say, until Ctrl-C or the end of ``--seconds``."""
        from .stage import Show  # noqa: PLC0415 - the extra [console] may be missing
        from .stage_pages import serving  # noqa: PLC0415

        options = self._options
        show = Show(chaos, customers, client, services, self._folder, waits=self._waits)
        self._show = show
        end = asyncio.Event()
        with until_interrupted(end):
            console = f"http://127.0.0.1:{options.console_port}/?token={options.console_token}"
            stage = show.staged(seed=options.seed, store=self._store, prefix=self._prefix(), console=console)
            show.director.settings.chaos = options.chaos
            async with serving(stage, options.port) as url:
                self._shown.note(
                    f"\nthe stage:   {url}\nthe console: {console}\nCtrl-C ends the show, and audits the books\n"
                )
                self._shown.event(self._scene, Event("stage", url, os.getpid(), "the stage is open"))
                if options.browser:
                    await asyncio.to_thread(webbrowser.open, url)
                if options.seconds:
                    asyncio.get_running_loop().call_later(options.seconds, end.set)
                await show.director.direct(end)
        self._shown.note("the show is over: waiting for the orders that are under way")

    def _prefix(self) -> str:
        """What the ids of orders begin with; in a store that may have been used before, something new."""
        fresh = self._options.store is None and not self._options.postgres
        return "o-" if fresh else f"{int(time.time()):x}-"

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
            await chaos.mend(replace=self._show is None or self._show.director.settings.replace)
            customers.hear()
            self._scene.leader = await chaos.leader()
            await self._draw(customers)
            await asyncio.sleep(DRAW_EVERY)

    async def _draw(self, customers: Customers) -> None:
        scene = self._scene
        scene.placed = len(customers.told)
        if self._show is not None:
            scene.wanted = len(customers.orders)
        with suppress(StoreUnavailableError):  # the last known counts stand until the store is back
            scene.states = await customers.states()
        scene.waits = await self._waits.look(has_leader=bool(scene.leader))
        self._shown.show(scene)

    def _tell(self, event: Event) -> None:
        self._scene.events.append((self._scene.seconds, event))
        self._shown.event(self._scene, event)
        if self._show is not None:
            self._show.director.tell(event)


async def _make_tables(caller: Caller) -> None:
    """Make the shop's own table, beside makegood's."""
    await caller.execute(TABLE, ())
