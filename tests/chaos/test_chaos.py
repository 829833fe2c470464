"""Half a minute of chaos on each store, and falsified books: what the run's check must say, and what it must not miss."""

import asyncio
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import permutations
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import pytest

from examples.chaos import waits
from examples.chaos.approver import NOTES, read_lines
from examples.chaos.checker import BOOKS, examine
from examples.chaos.ends import FILE
from examples.chaos.kinds import kinds_of
from examples.chaos.orders import MOMENT_PREFIX, SCHEDULE, rested
from examples.chaos.report import WAITS
from examples.chaos.server import listening, tell
from examples.orders.temporary_postgres import programs
from examples.orders.world import ROOT
from makegood import MakegoodError
from tests.example.test_demo import descendants

pytestmark = pytest.mark.timeout(400)

SECONDS = 30
CHAOS = (sys.executable, "-m", "examples.chaos")
Lines = list[dict[str, Any]]


@dataclass(frozen=True)
class Run:
    """A run that has ended: its exit code, its report, what it said besides, and its folder."""

    store: str
    code: int
    report: dict[str, Any]
    said: str
    folder: Path


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """A run on each store. What it leaves is deleted when it went well; otherwise its folder is named and stays."""
    store: str = request.param
    if store == "postgres":
        needs_postgres()
    parent = Path(tempfile.mkdtemp(prefix="chaos-"))  # a short path: sockets stand in it
    process = subprocess.run(
        [*CHAOS, "--store", store, "--seconds", str(SECONDS), "--json", "--keep"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(parent)},
        capture_output=True,
        text=True,
        check=False,
        timeout=360,
    )
    lines = [json.loads(line) for line in process.stdout.splitlines()]
    assert lines, process.stderr
    assert lines[-1]["event"] == "report", (lines[-1], process.stderr)
    report = lines[-1]
    print(
        f"{store}: SEED={report['seed']}, {sum(report['faults'].values())} faults met, ends {report['ends']}"
    )
    yield Run(store, process.returncode, report, process.stderr, Path(report["folder"]))
    if report["ok"]:
        shutil.rmtree(parent)
    else:
        print(f"the logs and books of this run are in {report['folder']}")


def needs_postgres() -> None:
    """Skip where there is none."""
    pytest.importorskip("asyncpg", reason="postgres: asyncpg is not installed")
    try:
        programs()
    except MakegoodError as why:
        pytest.skip(f"postgres: {why}")


def test_after_half_a_minute_of_chaos_the_books_balance_and_every_fault_has_happened(run: Run) -> None:
    report = run.report
    assert (run.code, report["findings"], report["complaints"], report["missing"]) == (0, [], [], []), (
        run.said
    )
    assert report["ok"] is True
    assert set(report["faults"]) == {kind.value for kind in kinds_of(run.store)}
    assert min(report["faults"].values()) > 0
    assert report["placed"] > SECONDS
    for end in ("processed", "undone", "error"):
        assert report["ends"][end] + report["told_first"].get(end, 0) > 0
    assert report["ends"]["open"] == 0
    assert report["audit"]["balanced"] is True
    assert report["recoveries"]["orders taken over"] > 0
    assert report["recoveries"]["terms of a leader"] > 1
    for name in WAITS:
        assert report["waits"][name] > 0
    assert report["waits"]["signals acknowledged"] >= report["waits"]["signals used"] // 2


# -- falsified ends ------------------------------------------------------------------------------------------------------


def order_in(lines: Lines, outcome: str, **fields: object) -> dict[str, Any]:
    """An order that ended so."""
    return next(
        line
        for line in lines
        if line["outcome"] == outcome and all(line.get(name) == value for name, value in fields.items())
    )


def enter(folder: Path, order: str, effect: str, *, key: str = "falsified") -> None:
    """Enter an effect into the books."""
    with closing(sqlite3.connect(folder / BOOKS)) as db, db:
        db.execute(
            "INSERT INTO entry (service, operation, effect, change, key, asked_by, scope, token, order_id, sku, cents, at)"
            " VALUES ('x', ?, ?, 1, ?, ?, '', '', ?, '', 1, 0)",
            (effect, effect, key, key, order),
        )


def charged_twice(folder: Path, lines: Lines) -> None:
    enter(folder, order_in(lines, "processed")["order"], "charge")


def charged_though_undone(folder: Path, lines: Lines) -> None:
    enter(folder, order_in(lines, "undone")["order"], "charge")


def shipped_though_in_error(folder: Path, lines: Lines) -> None:
    enter(folder, order_in(lines, "error")["order"], "ship")


def effect_gone(folder: Path, lines: Lines) -> None:
    with closing(sqlite3.connect(folder / BOOKS)) as db, db:
        db.execute("DROP TRIGGER entry_never_goes")
        order = order_in(lines, "processed")["order"]
        db.execute("DELETE FROM entry WHERE order_id = ? AND effect = 'ship'", (order,))


def order_forgotten(folder: Path, lines: Lines) -> None:
    lines.remove(order_in(lines, "processed"))


def order_lost(folder: Path, lines: Lines) -> None:
    order_in(lines, "processed")["outcome"] = ""


def task_gone(folder: Path, lines: Lines) -> None:
    order_in(lines, "undone").pop("state")


def no_alert(folder: Path, lines: Lines) -> None:
    order_in(lines, "error")["alerts"] = []


def listed_and_does_not_stand(folder: Path, lines: Lines) -> None:
    line = next(
        line
        for line in lines
        if line["outcome"] == "error" and line["steps"]["ship"][0] in ("waiting", "undone")
    )
    line["standing"].append("ship")


def stands_and_is_not_listed(folder: Path, lines: Lines) -> None:
    """A step nobody knows the end of is listed too, and may have left nothing: only what the books show counts."""
    with closing(sqlite3.connect(folder / BOOKS)) as db:
        sums = "SELECT order_id, effect FROM entry GROUP BY order_id, effect HAVING sum(change) > 0"
        in_the_books = set(db.execute(sums))
    line, effect = next(
        (line, effect)
        for line in lines
        if line["outcome"] == "error"
        for effect in (name.partition(".")[0] for name in line["standing"])
        if (line["order"], effect) in in_the_books
    )
    line["standing"] = [name for name in line["standing"] if name.partition(".")[0] != effect]


def other_history(folder: Path, lines: Lines) -> None:
    order_in(lines, "processed")["told_by_history"] = "undoing"


def told_otherwise(folder: Path, lines: Lines) -> None:
    order_in(lines, "processed", acts=[])["first"] = "undone"


def step_under_way(folder: Path, lines: Lines) -> None:
    order_in(lines, "undone")["steps"]["reserve"][0] = "running"


def still_locked(folder: Path, lines: Lines) -> None:
    order_in(lines, "processed")["locked_by"] = 3


# -- falsified waits -----------------------------------------------------------------------------------------------------


def wait_in(lines: Lines, *reasons: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """An order and a wait of it that ended so."""
    return next((line, wait) for line in lines for wait in line.get("waits", ()) if wait["reason"] in reasons)


def change_waits(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change what the store says of signals and moments."""
    store_waits = json.loads((folder / waits.FILE).read_text())
    change(store_waits)
    (folder / waits.FILE).write_text(json.dumps(store_waits))


def note_signal(folder: Path, **facts: object) -> None:
    """Add a note of a customer."""
    with (folder / NOTES.format(0)).open("a") as file:
        file.write(json.dumps({"kind": "signal", "conflict": False, **facts}) + "\n")


def short_sleep(folder: Path, lines: Lines) -> None:
    _, wait = wait_in(lines, "moment_came")
    wait["end"] = wait["begin"] + wait["length"] / 2


def sleep_that_the_books_deny(folder: Path, lines: Lines) -> None:
    order = order_in(lines, "processed", workflow=rested.name, acts=[])["order"]
    with closing(sqlite3.connect(folder / BOOKS)) as db, db:
        db.execute("DROP TRIGGER entry_never_changes")
        (at,) = db.execute(
            "SELECT at FROM entry WHERE order_id = ? AND effect = 'reserve' AND change = 1", (order,)
        ).fetchone()
        db.execute(
            "UPDATE entry SET at = ? WHERE order_id = ? AND effect = 'charge' AND change = 1",
            (at + 0.1, order),
        )


def begun_too_early(folder: Path, lines: Lines) -> None:
    line = next(
        line for line in lines if line["delay"] and line["outcome"] == "processed" and not line["acts"]
    )
    line["submit_time"] += 1000


def signal_lost(folder: Path, lines: Lines) -> None:
    first = next(note for note in read_lines(folder / NOTES.format(0)) if note["kind"] == "signal")
    change_waits(
        folder,
        lambda all_waits: all_waits.update(
            signals=[signal for signal in all_waits["signals"] if signal["id"] != first["id"]]
        ),
    )


def signal_new_twice(folder: Path, lines: Lines) -> None:
    first = next(note for note in read_lines(folder / NOTES.format(0)) if note["kind"] == "signal")
    note_signal(folder, **{**first, "created": True})
    note_signal(folder, **{**first, "created": True})


def signal_in_two_waits(folder: Path, lines: Lines) -> None:
    _, wait = wait_in(lines, "signal_came")
    line, other = wait_in(lines, "timed_out", "no_signal")
    other["reason"] = wait["reason"]
    assert line["waits"]


def value_of_another_signal(folder: Path, lines: Lines) -> None:
    line = next(line for line in lines if line.get("results"))
    line["results"] = dict.fromkeys(line["results"], "another")


def signal_neither_used_nor_kept(folder: Path, lines: Lines) -> None:
    def forget(all_waits: dict[str, Any]) -> None:
        all_waits["signals"][0] |= {"used": None, "kept": False}

    change_waits(folder, forget)


def timed_out_over_a_signal(folder: Path, lines: Lines) -> None:
    line, wait = wait_in(lines, "timed_out", "no_signal")
    facts = {"task": line["task"], "id": "in-time"}
    at = wait["begin"] + wait["length"] / 2
    signal = {**facts, "at": at, "used": None, "used_at": None, "kept": True, "seq": 0}
    change_waits(folder, lambda all_waits: all_waits["signals"].append(signal))
    note_signal(folder, **facts, order=line["order"], begin=1.0, end=1.1, by_key=True, created=True)


def timed_out_early(folder: Path, lines: Lines) -> None:
    _, wait = wait_in(lines, "timed_out", "no_signal")
    wait["end"] = wait["begin"] + wait["length"] / 2


def moment_fired_twice(folder: Path, lines: Lines) -> None:
    change_waits(folder, lambda all_waits: all_waits["firings"].append(all_waits["firings"][0]))


def moment_forgotten(folder: Path, lines: Lines) -> None:
    def forget(all_waits: dict[str, Any]) -> None:
        all_waits["firings"].pop()
        all_waits["schedule"]["firings"] -= 1

    change_waits(folder, forget)


def moment_not_on_the_schedule(folder: Path, lines: Lines) -> None:
    def move(all_waits: dict[str, Any]) -> None:
        all_waits["firings"][0]["key"] = f"{SCHEDULE}@2020-02-02T00:00:00Z"

    change_waits(folder, move)


def moment_settled_twice(folder: Path, lines: Lines) -> None:
    key = json.loads((folder / waits.FILE).read_text())["firings"][0]["key"]
    for number in range(2):
        enter(folder, MOMENT_PREFIX + key.partition("@")[2], "email", key=f"falsified-{number}")


# -- falsified lanes -----------------------------------------------------------------------------------------------------


def in_one_lane(lines: Lines) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Two orders of one lane, of which the second queued while the first did or had the lane, and that no operator touched."""
    orders = [line for line in lines if line.get("lanes") and not line["acts"] and line["turns"][0][1]]
    for first, second in permutations(orders, 2):
        (begin, _, end), (moment, _, _) = first["turns"][0], second["turns"][0]
        if set(first["lanes"]) & set(second["lanes"]) and end and begin < moment < end:
            yield first, second


def two_in_a_lane(folder: Path, lines: Lines) -> None:
    first, second = next(in_one_lane(lines))
    _, begin, end = first["turns"][0]
    second["turns"][0][1] = (begin + end) / 2


def out_of_order(folder: Path, lines: Lines) -> None:
    first, second = next(
        pair for pair in in_one_lane(lines) if pair[1]["turns"][0][0] < pair[0]["turns"][0][1]
    )
    moment = (second["turns"][0][0] + first["turns"][0][1]) / 2
    first["ack_seconds"], first["delay"] = 0.0, 0.0
    second["turns"][0][1:] = [moment, moment]


def forgotten_in_its_lane(folder: Path, lines: Lines) -> None:
    next(line for line in lines if line.get("lanes"))["state"] = "queued"


def mixed_in_the_books(folder: Path, lines: Lines) -> None:
    first, second = next(
        pair for pair in in_one_lane(lines) if all(each["outcome"] == "processed" for each in pair)
    )
    with closing(sqlite3.connect(folder / BOOKS)) as db, db:
        db.execute("DROP TRIGGER entry_never_changes")
        db.execute(
            "UPDATE entry SET at = (SELECT at - 0.01 FROM entry WHERE order_id = ? AND effect = 'ship') WHERE order_id = ? AND effect = 'reserve'",
            (first["order"], second["order"]),
        )


def falsified(run: Run, folder: Path, falsify: Callable[[Path, Lines], None]) -> None:
    """Copy the books and the ends of a run into a folder, and falsify the copy."""
    for path in (
        run.folder / BOOKS,
        run.folder / FILE,
        run.folder / waits.FILE,
        *run.folder.glob(NOTES.format("*")),
    ):
        shutil.copy(path, folder / path.name)
    lines = [json.loads(line) for line in (folder / FILE).read_text().splitlines()]
    falsify(folder, lines)
    (folder / FILE).write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize(
    ("falsify", "finding"),
    [
        (charged_twice, "charged twice"),
        (charged_though_undone, "charged, though undone"),
        (shipped_though_in_error, "in place, but not listed: ship"),
        (effect_gone, "missing, though processed: ship"),
        (order_forgotten, "effects of an unknown order"),
        (order_lost, "the shop was never told"),
        (task_gone, "the shop knows nothing of it"),
        (no_alert, "there is no alert"),
        (listed_and_does_not_stand, "ship is listed as in place, and is not in the books"),
        (stands_and_is_not_listed, "in place, but not listed: "),
        (other_history, "its history says undoing last"),
        (told_otherwise, "its customer was told undone"),
        (step_under_way, "while its step reserve is running"),
        (still_locked, "still held by node 3"),
        (short_sleep, "s and not"),
        (sleep_that_the_books_deny, "s after it was reserved, with a sleep of"),
        (begun_too_early, "before the order was to begin"),
        (signal_lost, "was acknowledged and is lost"),
        (signal_new_twice, "was new"),
        (signal_in_two_waits, "waits of step"),
        (value_of_another_signal, "has the value of signal another"),
        (signal_neither_used_nor_kept, "is neither used nor kept"),
        (timed_out_over_a_signal, "timed out over signal in-time"),
        (timed_out_early, "before its time"),
        (moment_fired_twice, "of the schedule has 2 tasks"),
        (moment_forgotten, "moments"),
        (moment_not_on_the_schedule, "was fired, and the schedule has none then"),
        (moment_settled_twice, "was settled"),
        (two_in_a_lane, "took it at"),
        (out_of_order, "went before order"),
        (forgotten_in_its_lane, "still waits for its lanes"),
        (mixed_in_the_books, "before the last effect of order"),
    ],
)
def test_a_falsified_run_is_found_out(
    run: Run, tmp_path: Path, falsify: Callable[[Path, Lines], None], finding: str
) -> None:
    """One more lie in the books or in the ends of a run, and the check says what it is."""
    before = examine(run.folder).findings
    falsified(run, tmp_path, falsify)
    findings = [text for text in examine(tmp_path).findings if text not in before]
    assert [text for text in findings if finding in text], findings


def test_the_command_says_what_was_falsified_and_fails(run: Run, tmp_path: Path) -> None:
    falsified(run, tmp_path, charged_twice)
    process = subprocess.run(
        [*CHAOS, "--audit", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert process.returncode == 1
    assert "charged twice" in process.stdout


# -- an end in the middle ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "store"), [(signal.SIGINT, "sqlite"), (signal.SIGKILL, "postgres")])
def test_ended_in_the_middle_it_leaves_no_process_behind(number: signal.Signals, store: str) -> None:
    """Interrupted or killed while one of its processes is stopped: all end, the PostgreSQL server too."""
    if store == "postgres":
        needs_postgres()
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        chaos = subprocess.Popen(
            [*CHAOS, "--store", store, "--seconds", "60", "--json"],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": folder},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert chaos.stdout is not None
        try:
            is_over = any(json.loads(line)["event"] == "stopped" for line in chaos.stdout)
            assert is_over, chaos.communicate()[1]
            with descendants(chaos.pid) as descriptors:
                # Of seven one or two may just have been killed: that is what it does.
                assert len(descriptors) >= 5
                chaos.send_signal(number)
                _, errors = chaos.communicate(timeout=120)
                assert chaos.returncode == (130 if number is signal.SIGINT else -number), errors
                deadline = time.monotonic() + 120
                while alive := [fd for fd in descriptors if not wait([fd], 0)]:
                    assert time.monotonic() < deadline, f"{len(alive)} processes outlived the run"
                    wait(alive, 0.1)
        finally:
            chaos.kill()
            chaos.communicate()
        if number is signal.SIGINT:
            assert list(Path(folder).glob("makegood-chaos-*")) == []


async def test_the_socket_of_the_keeper_is_there_only_once_it_is_listened_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits for the file and connects is not refused in the moment between its bind and its listen."""
    place, early = tmp_path / "server", []
    listen = socket.socket.listen

    def noted(self: socket.socket, *backlog: int) -> None:
        early.append(place.exists())
        listen(self, *backlog)

    async def hear(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"ok there\n")
        writer.close()

    monkeypatch.setattr(socket.socket, "listen", noted)
    async with await listening(hear, place):
        assert (early, await tell(place, "url")) == ([False], "there")


def test_the_keeper_of_a_server_that_is_told_again_and_again_to_end_ends_it_first(tmp_path: Path) -> None:
    """Its starter's death is told twice, by the kernel and by the tether: whenever the second comes, no server is left behind."""
    needs_postgres()
    place = tmp_path / "socket"
    command = [sys.executable, "-m", "examples.chaos.server", str(place), str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT) as keeper:
        end = os.pidfd_open(keeper.pid)
        deadline = time.monotonic() + 120
        while not place.exists():
            assert time.monotonic() < deadline, "it did not begin"
            assert not wait([end], 0.05), "it ended at once"
        with descendants(keeper.pid) as descriptors:
            assert descriptors
            while not wait([end], 0.003):
                keeper.terminate()
            assert (keeper.wait(), set(wait(descriptors, 0))) == (0, set(descriptors)), (
                "a server was left behind"
            )
        os.close(end)
