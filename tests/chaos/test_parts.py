"""The parts of the chaos run that need no processes: the plan, the network, and what makes a report a bad one."""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from examples.chaos.approver import answers, open_notes, read_lines
from examples.chaos.checker import Verdict
from examples.chaos.command import parse
from examples.chaos.kinds import BROKER, LIFE, LONGEST_COMPLETE_BY, Kind, kinds_of, plan
from examples.chaos.network import Proxy
from examples.chaos.orders import (
    CONSENT_WITHIN,
    approved,
    brief,
    by_hand,
    countersigned,
    in_a_hurry,
    in_line,
    rested,
    wanted,
)
from examples.chaos.report import WAITS, Report
from examples.chaos.screen import tables
from examples.chaos.wait_checks import WaitVerdict
from examples.orders.auditor import Report as Audit
from examples.orders.shop import place_order
from tests.waiting import moment

STORES = ("sqlite", "postgres")

# -- the plan ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("seconds", [10.0, 30.0, 900.0])
def test_each_kind_must_come_once_in_the_first_two_thirds(store: str, seconds: float) -> None:
    blows = plan(kinds_of(store), seconds, random.Random(1))
    musts = [blow for blow in blows if blow.must]
    assert Counter(blow.kind for blow in musts) == Counter(kinds_of(store))
    assert max(blow.at for blow in musts) < seconds * 0.66
    assert [blow.at for blow in blows] == sorted(blow.at for blow in blows)
    assert len(blows) >= seconds / 0.5


def test_the_seed_decides_the_plan() -> None:
    kinds = kinds_of("postgres")
    assert plan(kinds, 60, random.Random(3)) == plan(kinds, 60, random.Random(3))
    assert plan(kinds, 60, random.Random(3)) != plan(kinds, 60, random.Random(4))


def test_who_is_stopped_is_stopped_for_longer_than_a_heartbeat_and_an_attempt_last() -> None:
    stops = [b for b in plan(kinds_of("sqlite"), 600, random.Random(1)) if b.kind.name.startswith("STOP")]
    assert len(stops) > 10
    assert all(blow.away > max(LIFE, LONGEST_COMPLETE_BY) for blow in stops)


def test_each_store_has_faults_of_its_own() -> None:
    assert Kind.FILE_LOCKED in set(kinds_of("sqlite")) - set(kinds_of("postgres"))
    assert Kind.ANSWERS_LOST in set(kinds_of("postgres")) - set(kinds_of("sqlite"))
    assert set(kinds_of("sqlite", "rabbitmq")) | set(kinds_of("postgres")) == set(Kind)
    assert set(kinds_of("sqlite", "rabbitmq")) - set(kinds_of("sqlite")) == set(BROKER)


def test_customers_order_in_all_ways_and_no_two_orders_have_one_id() -> None:
    stream = wanted(2, random.Random(1))
    orders = [next(stream) for _ in range(300)]
    ways = (place_order, by_hand, in_a_hurry, brief, rested, approved, countersigned, in_line)
    assert {id(workflow) for workflow, _ in orders} == {id(workflow) for workflow in ways}
    assert len({order.id for _, order in orders}) == 300
    refusals = [order for _, order in orders if order.sku == "sold-out" or order.card == "declined"]
    assert 20 < len(refusals) < 100


# -- the customers who answer -----------------------------------------------------------------------------------------------


def test_customers_answer_early_late_twice_and_never_by_key_and_by_id() -> None:
    """The order and its place alone decide, so that a customer who was killed says the same again. Any twenty have all kinds."""
    plans = [answers(f"c1-{n}", n, 1.5) for n in range(200)]
    assert plans == [answers(f"c1-{n}", n, 1.5) for n in range(200)]
    assert {sum(answer.is_late for plan in plans[n : n + 20] for answer in plan) for n in range(180)} == {2}
    alone = [plan[0] for plan in plans if len(plan) == 1]
    assert any(answer.wait < 0.2 for answer in alone)
    assert any(answer.wait > 1.5 + CONSENT_WITHIN + 1 for answer in alone)
    assert any(not plan for plan in plans)
    assert {len({answer.id for answer in plan}) for plan in plans if len(plan) == 2} == {1, 2}
    assert {answer.by_key for plan in plans for answer in plan} == {True, False}


def test_a_note_in_which_a_customer_was_killed_hides_no_other(tmp_path: Path) -> None:
    file = tmp_path / "answers-0.jsonl"
    file.write_text('{"a": 1}\n{"b": {"c"')
    assert read_lines(file) == [{"a": 1}]
    for _ in range(2):
        with open_notes(file) as notes:
            notes.write('{"d": 2}\n')
    assert read_lines(file) == [{"a": 1}, {"d": 2}, {"d": 2}]


# -- the network ---------------------------------------------------------------------------------------------------------


Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Town:
    """A proxy before a server that says everything back, and connections through it."""

    def __init__(self, seed: int) -> None:
        self.proxy = Proxy(random.Random(seed))
        self.writers: list[asyncio.StreamWriter] = []

    async def connect(self) -> Line:
        """A connection that works."""
        line = await asyncio.open_connection("127.0.0.1", self.proxy.port)
        self.writers.append(line[1])
        assert await answered(line) == b"word"
        return line

    async def echo(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Say everything back."""
        self.writers.append(writer)
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1000):
                writer.write(data)
        writer.close()


@asynccontextmanager
async def echoing(seed: int = 1) -> AsyncIterator[Town]:
    """Such a town, and everything closed behind it."""
    town = Town(seed)
    server = await asyncio.start_server(town.echo, "127.0.0.1", 0)
    await town.proxy.start(server.sockets[0].getsockname()[1])
    try:
        yield town
    finally:
        await town.proxy.stop()
        server.close()
        for writer in town.writers:
            writer.transport.abort()
        for writer in town.writers:
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def answered(line: Line) -> bytes:
    """Send a word; return what comes back, empty when the connection was reset."""
    reader, writer = line
    writer.write(b"word")
    try:
        return await reader.read(1000)
    except ConnectionError:
        return b""


class Length:
    """A fault's duration: it has begun once ``began`` is set, and lasts until ``over`` is."""

    def __init__(self) -> None:
        self.began, self.over = asyncio.Event(), asyncio.Event()

    async def __call__(self, _: float) -> None:
        self.began.set()
        await self.over.wait()


async def test_refused_whoever_is_connected_is_reset_and_whoever_comes_is_turned_away_until_it_is_over() -> (
    None
):
    async with echoing() as town:
        line, length = await town.connect(), Length()
        fault = asyncio.create_task(town.proxy.refuse(1, length))
        await length.began.wait()
        assert await answered(line) == b""
        with pytest.raises(OSError, match="Connect"):
            await asyncio.open_connection("127.0.0.1", town.proxy.port)
        length.over.set()
        assert await fault == 2
        await town.connect()


async def test_reset_some_of_the_connections_end_and_new_ones_work() -> None:
    async with echoing() as town:
        lines, length = [await town.connect() for _ in range(8)], Length()
        length.over.set()
        hit = await town.proxy.reset(1, length)
        replies = [await answered(line) for line in lines]
        assert 0 < hit <= 8
        assert replies.count(b"") == hit
        await town.connect()


async def test_a_black_hole_passes_nothing_and_at_its_end_some_go_on_some_are_reset_and_some_stay_silent() -> (
    None
):
    async with echoing(seed=2) as town:
        lines, length = [await town.connect() for _ in range(40)], Length()
        fault = asyncio.create_task(town.proxy.hole(1, length))
        await length.began.wait()
        waiting = [asyncio.create_task(answered(line)) for line in lines]
        async with asyncio.timeout(60):
            while town.proxy._held < 40:
                await moment()
        assert not any(task.done() for task in waiting)
        length.over.set()
        assert await fault >= 40
        silent, ready = set(waiting), set(waiting)
        while silent and ready:  # until four seconds bring nothing more
            ready, silent = await asyncio.wait(silent, timeout=4.0)
        replies = Counter(task.result() for task in waiting if task.done())
        assert replies[b"word"] > 5
        assert replies[b""] > 5
        assert len(silent) >= 1
        town.proxy.hang_up()
        assert {await task for task in silent} == {b""}


async def test_lost_answers_reach_the_server_and_not_the_client() -> None:
    async with echoing() as town:
        lines, length = [await town.connect() for _ in range(12)], Length()
        fault = asyncio.create_task(town.proxy.lose_answers(1, length))
        await length.began.wait()
        replies = Counter(await asyncio.gather(*map(answered, lines)))
        length.over.set()
        assert await fault == replies[b""]
        assert replies[b""] > 0
        assert replies[b"word"] > 0


# -- the report ----------------------------------------------------------------------------------------------------------


def good() -> Report:
    """A run in which everything happened and nothing is wrong."""
    kinds = kinds_of("sqlite")
    audit = Audit((), {"submitted": 9}, {}, {"charged": 0, "refunded": 0, "kept": 0})
    through = {"silent attempts judged": 3, "orders taken over": 2, "terms of a leader": 2}
    ends = {"processed": 5, "undone": 3, "error": 1}
    counts = dict.fromkeys(kinds, 2)
    verdict = Verdict(audit, (), WaitVerdict((), dict.fromkeys(WAITS, 4)))
    return Report("sqlite", 7, 30.0, 2.0, kinds, counts, ends, {}, through, {}, verdict, ())


def test_a_good_run_is_well() -> None:
    assert good().well
    assert good().missing == []
    assert "SEED=7" in good().sentence()


@pytest.mark.parametrize("kind", kinds_of("sqlite"))
def test_a_run_in_which_a_kind_of_fault_did_not_happen_proves_nothing_and_says_which(kind: Kind) -> None:
    counts = dict(good().met)
    del counts[kind]
    report = replace(good(), met=counts)
    assert not report.well
    assert report.missing == [f"no {kind.value}"]


@pytest.mark.parametrize("end", ["processed", "undone", "error"])
def test_a_run_without_one_of_the_ends_proves_nothing_and_says_which(end: str) -> None:
    report = replace(good(), ends={**good().ends, end: 0})
    assert report.missing == [f"no order ended {end}"]
    assert replace(report, told={end: 1}).well  # it ended so once; an operator took it up again


@pytest.mark.parametrize("name", ["silent attempts judged", "orders taken over", "terms of a leader"])
def test_a_run_that_went_through_nothing_proves_nothing(name: str) -> None:
    report = replace(good(), recoveries={**good().recoveries, name: 1 if "terms" in name else 0})
    assert len(report.missing) == 1
    assert name in report.missing[0]


@pytest.mark.parametrize("name", WAITS)
def test_a_run_in_which_nothing_waited_proves_nothing_and_says_what_did_not(name: str) -> None:
    verdict = good().verdict
    report = replace(
        good(), verdict=replace(verdict, waits=WaitVerdict((), {**verdict.waits.counts, name: 0}))
    )
    assert report.missing == [f"no {name}"]
    assert not report.well


def test_a_finding_about_waits_is_enough() -> None:
    waits = WaitVerdict(("order a: slept 1 s and not 2 s",), good().verdict.waits.counts)
    assert not replace(good(), verdict=replace(good().verdict, waits=waits)).well


def test_one_complaint_or_contradiction_is_enough() -> None:
    audit = good().verdict.audit
    assert not replace(good(), complaints=["agent-1 ended of itself"]).well
    assert not replace(good(), verdict=Verdict(audit, ("order a: is odd",))).well


@pytest.mark.parametrize("width", [60, 110])
def test_the_tables_show_every_kind_and_every_trouble(width: int) -> None:
    console = Console(width=width, record=True, quiet=False, file=None)
    with console.capture() as capture:
        console.print(tables(replace(good(), complaints=["[odd] thing"]), width))
    for kind in good().enabled:
        assert kind.value in capture.get()
    assert "[odd] thing" in capture.get()


def test_too_short_a_run_is_refused() -> None:
    with pytest.raises(SystemExit):
        parse(["--seconds", "3"])
