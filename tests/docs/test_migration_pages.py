"""The pages on migration: the programs of each are run to their ends, ours and, where its packages are, the
other tool's.
"""

import asyncio
import re
import subprocess
from pathlib import Path

import pytest

import makegood as mg
from benchmarks.environments import FOLDER
from tests.docs.test_operate_howto import loaded
from tests.waiting import until

BUILD = Path(__file__).resolve().parents[2] / "docs/build"


def block(origin: str, kind: str) -> str:
    """Return the one program of a kind on the page of a tool."""
    text = (BUILD / f"migrate-from-{origin}.md").read_text("utf-8")
    (code,) = re.findall(rf"^```python{kind and ' '}{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return str(code)


@pytest.mark.parametrize(
    ("origin", "app", "workflow", "result"),
    [
        ("celery", "shop", "place_order", "parcel x"),
        ("temporal", "shop", "place_order", "payment x"),
        ("dbos", "app", "greet", "x signed"),
    ],
)
def test_the_program_of_the_page_runs(
    tmp_path: Path, origin: str, app: str, workflow: str, result: str
) -> None:
    (tmp_path / f"from_{origin}.py").write_text(block(origin, ""), encoding="utf-8")
    page = loaded(tmp_path, f"from_{origin}")

    async def call() -> str:
        async with mg.Node(getattr(page, app), f"sqlite:///{tmp_path / 'new.db'}") as node:
            task = await node.client.submit(getattr(page, workflow), "x")
            answer: str = await task.result("60s")
            return answer

    assert asyncio.run(call()) == result


@pytest.mark.parametrize("origin", ["temporal", "dbos"])
def test_the_program_that_waits_does_what_the_page_says(tmp_path: Path, origin: str) -> None:
    """It begins later, is answered, clicked twice or with a no, sleeps a day, and settles by a schedule."""
    name = f"waits_like_{origin}"
    (tmp_path / f"{name}.py").write_text(block(origin, "waiting"), encoding="utf-8")
    page = loaded(tmp_path, name)

    async def call() -> None:
        async with mg.Node(page.office, f"sqlite:///{tmp_path / 'new.db'}") as node:
            client = node.client
            for trip, yes in (("rome", True), ("oslo", False)):
                await page.submit(client, trip)
                task: mg.TaskHandle[str] = await client.submit(page.travel, trip, key=trip, delay="2h")
                assert (await task.status()).task.state == "sleeping"
                assert (await task.wake()).verdict == "applied"

                async def waits(task: mg.TaskHandle[str] = task) -> bool:
                    return [s.state for s in (await task.status()).steps if s.name == "approval"] == ["ready"]

                await until(waits)
                for _ in range(2):
                    await page.answer(client, trip, "click-1", yes)
                if not yes:
                    with pytest.raises(mg.TaskUndone, match="the boss said no"):
                        await task.result("60s")
                    continue

                async def sleeps(task: mg.TaskHandle[str] = task) -> bool:
                    return [s.state for s in (await task.status()).steps if s.name == "sleep"] == ["ready"]

                await until(sleeps)
                await task.wake(step="sleep")
                assert await task.result("60s") == f"paid {trip}"
                assert len((await task.status()).signals) == 1
            settling = await (await client.find_schedule("nightly")).trigger()
            assert str(await settling.result("60s")).startswith("settled 20")

    asyncio.run(asyncio.wait_for(call(), 120))


@pytest.mark.parametrize("origin", ["temporal", "dbos"])
def test_the_program_of_the_other_tool_compiles(origin: str) -> None:
    compile(block(origin, origin), f"{origin}.py", "exec")


def test_the_race_of_the_page_runs(tmp_path: Path) -> None:
    """One carrier refuses, the other one wins; the program for Temporal compiles."""
    compile(block("temporal", "race"), "temporal.py", "exec")
    (tmp_path / "races_like_temporal.py").write_text(block("temporal", "first"), encoding="utf-8")
    page = loaded(tmp_path, "races_like_temporal")

    async def call() -> str:
        async with mg.Node(page.shop, f"sqlite:///{tmp_path / 'new.db'}") as node:
            task = await node.client.submit(page.ship, "x")
            answer: str = await task.result("60s")
            return answer

    assert asyncio.run(call()) == "fast x"


DRIVER = """
import sys
from datetime import UTC, datetime
from dbos import DBOS, SetWorkflowID
import trips

DBOS(config={"name": "trips", "system_database_url": "sqlite:///trips.sqlite", "log_level": "CRITICAL"})
DBOS.launch()
DBOS.register_queue("desk")
DBOS.sleep = staticmethod(lambda seconds: None)  # a day
trips.submit("rome")
assert DBOS.retrieve_workflow("rome").get_status().status == "DELAYED"
for trip, yes in (("oslo", True), ("bern", False)):
    with SetWorkflowID(trip):
        handle = DBOS.start_workflow(trips.travel, trip)
    for _ in range(2):
        trips.answer(trip, f"click-{trip}", yes)
    try:
        assert handle.get_result() == f"paid {trip}"
    except ValueError as no:
        assert (trip, str(no)) == ("bern", "the boss said no")
trips.schedule()
nights = DBOS.backfill_schedule("nightly", datetime(2026, 3, 28, tzinfo=UTC), datetime(2026, 3, 30, tzinfo=UTC))
nights += DBOS.backfill_schedule("nightly", datetime(2025, 10, 25, 12, tzinfo=UTC), datetime(2025, 10, 26, 12, tzinfo=UTC))
print(*(night.workflow_id.removeprefix("sched-nightly-") for night in nights))
DBOS.destroy()
"""


def test_the_program_of_dbos_runs(tmp_path: Path) -> None:
    """In the environment of the benchmark: it does what the page says, changes of clocks included."""
    python = FOLDER / "dbos/bin/python"
    if not python.exists():
        pytest.skip("dbos: its environment is missing: `make bench ARGS='--peers dbos'` installs it")
    (tmp_path / "trips.py").write_text(block("dbos", "dbos"), encoding="utf-8")
    (tmp_path / "drive.py").write_text(DRIVER, encoding="utf-8")
    run = subprocess.run(
        [python, "drive.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == [
        "2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2025-10-26T02:30:00+02:00", "2025-10-26T02:30:00+01:00",
    ]  # fmt: skip
