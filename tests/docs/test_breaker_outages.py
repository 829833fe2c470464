"""An hour without the service of the page on sparing services: the page's own program, on virtual time, undoes nothing. A step that
always fails comes to its verdict all the same.
"""

import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from makegood.model.breaker import Circuit
from makegood.options import Options
from makegood.testing import World
from makegood.testing.kit.proof import Played, Proof
from makegood.testing.simulator.swarm import Swarm
from tests.docs.test_operate_howto import loaded

PAGE = Path(__file__).resolve().parents[2] / "docs/build/rate-limits-and-circuit-breakers.md"
ONE = (("scheduler",), ("agent",), ("supervisor",))
TWO = (("scheduler",), ("agent",), ("agent",), ("supervisor",))
BESIDE = (("scheduler", "agent", "supervisor"),)


def calm(folder: Path, *, undoable: bool) -> Any:
    """Load the page's program; ``undoable``: its action has an undo, at the same service. An order fails while a file is named like it."""
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    if undoable:
        assert ", undo=mg.NOTHING" in code
        code = code.replace(", undo=mg.NOTHING", "")
        code = code.replace(
            "\n\n@shop.workflow()",
            "\n\n@charge.undo\ndef refund(order: str, *, result: str | None) -> None:\n    charge.fn(order)\n\n\n@shop.workflow()",
        )
    code = code.replace('if Path("down").exists():', 'if Path("down").exists() or Path(order).exists():')
    (folder / "calm.py").write_text(code, encoding="utf-8")
    return loaded(folder, "calm")


def an_hour(
    program: Any, down: Path, layout: tuple[tuple[str, ...], ...], tasks: int, *, before: int = 0
) -> tuple[Played, list[str]]:
    """Play an hour of outage in a calm world, then the service is back; returns the states of the tasks at the end of the hour.

    ``before``: of so many more tasks, the first half fails at first, and the others are answered after that.
    """
    states: list[str] = []

    async def script(world: World) -> None:
        early = [down.with_name(f"early-{n}") for n in range(before // 2)]
        for path in early:
            path.touch()
        orders = [await world.submit(program.buy, path.name) for path in early]
        if before:
            await world.until(lambda: world.now >= 2.0, within="1m")
            others = [await world.submit(program.buy, f"late-{n}") for n in range(before // 2)]
            await world.until(lambda: all(task.state == "processed" for task in others), within="1m")
        down.touch()  # noqa: ASYNC240 - as the page does
        orders += [await world.submit(program.buy, f"o-{n}") for n in range(tasks)]
        await world.until(lambda: world.now >= 3600.0, within="2h")
        states.extend(task.state for task in orders)
        for path in (down, *early):
            path.unlink()
        await world.run_to_rest()

    return play(script, layout), states


def play(script: Callable[[World], Coroutine[Any, Any, None]], layout: tuple[tuple[str, ...], ...]) -> Played:
    """Play a script in a calm world."""
    engine = Options(heartbeat=1.0, dead_after=5.0, supervise_every=5.0, lease=15.0, poll_every=1.0)
    swarm = Swarm(layout=layout, tasks=0, storm=0.0, client_apart=True, engine=engine)
    proof = Proof(lambda stage: script(World(stage)), fails=True, attempts=100_000)
    return proof.play(0, swarm, lambda _stage, _point: None)


@pytest.mark.parametrize(
    ("layout", "undoable", "tasks"),
    [(ONE, False, 4), (ONE, True, 1), (TWO, True, 4), (TWO, False, 1), (BESIDE, True, 4)],
    ids=["one agent", "a lone task", "two agents", "two agents for one task", "one process"],
)
def test_an_hour_of_outage_undoes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: Any, undoable: bool, tasks: int
) -> None:
    monkeypatch.chdir(tmp_path)
    run, states = an_hour(calm(tmp_path, undoable=undoable), tmp_path / "down", layout, tasks)
    assert (run.wrong, states) == ([], ["processing"] * tasks)
    assert run.outcome.ends == {"processed": tasks}
    failures = [e["failures"] for e in run.stage.history.of("counted")]
    assert sum(failures) <= tasks, "of each step at most its first failure counts"


@pytest.mark.parametrize(
    ("layout", "tasks"), [(TWO, 0), (BESIDE, 2)], ids=["two agents", "one process, and more tasks"]
)
def test_an_hour_of_outage_that_begins_while_calls_are_answered_undoes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: Any, tasks: int
) -> None:
    """Four have failed, and others were answered after that: the four look like steps of their own that fail, and are more than one."""
    monkeypatch.chdir(tmp_path)
    run, states = an_hour(calm(tmp_path, undoable=True), tmp_path / "down", layout, tasks, before=8)
    assert (run.wrong, states) == ([], ["processing"] * (4 + tasks))
    assert run.outcome.ends == {"processed": 8 + tasks}


@pytest.mark.parametrize(
    ("layout", "failures"), [(ONE, 1), (TWO, 1), (BESIDE, 2)], ids=["one agent", "two agents", "two steps"]
)
def test_a_step_that_always_fails_ends_soon_though_nobody_else_calls_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: Any, failures: int
) -> None:
    """Five attempts by default, three times five seconds and then five minutes apart; and what the circuit adds to each wait."""
    program = calm(tmp_path, undoable=False)
    bad = [tmp_path / f"bad-{n}" for n in range(failures)]
    for path in bad:
        path.touch()
    monkeypatch.chdir(tmp_path)
    at: list[float] = []

    async def script(world: World) -> None:
        bad_tasks = [await world.submit(program.buy, path.name) for path in bad]
        await world.until(lambda: world.now >= 1.0, within="1m")
        for n in range(30):
            await world.submit(program.buy, f"c-{n}")
        await world.until(lambda: {task.state for task in bad_tasks} == {"undone"}, within="30m")
        at.append(world.now)
        await world.run_to_rest()

    run = play(script, layout)
    assert (run.wrong, run.outcome.ends) == ([], {"processed": 30, "undone": failures})
    assert at[0] < 315.0 + 5 * 30.0


def test_a_failed_canary_that_counts_undoes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: within the hour all are undone, as they were when a canary counted."""
    true = Circuit.record_end

    def counting(self: Circuit, ticket: int, outcome: Any, now: float, jitter: float = 0.0, **_: Any) -> bool:
        return true(self, ticket, outcome, now, jitter) or ticket != -1

    monkeypatch.setattr(Circuit, "record_end", counting)
    monkeypatch.chdir(tmp_path)
    _, states = an_hour(calm(tmp_path, undoable=False), tmp_path / "down", ONE, 4)
    assert "undone" in states
