"""An hour without the service of the page on sparing services: the page's own program, on virtual time, undoes nothing."""

import re
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


def calm(folder: Path, *, undone: bool) -> Any:
    """Load the page's program; ``undone``: its action has an undo, at the same service."""
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    if undone:
        assert ", undo=mg.NOTHING" in code
        code = code.replace(", undo=mg.NOTHING", "")
        code = code.replace(
            "\n\n@shop.workflow()",
            "\n\n@charge.undo\ndef refund(order: str, *, result: str | None) -> None:\n    charge.fn(order)\n\n\n@shop.workflow()",
        )
    (folder / "calm.py").write_text(code, encoding="utf-8")
    return loaded(folder, "calm")


def an_hour(
    program: Any, down: Path, layout: tuple[tuple[str, ...], ...], tasks: int
) -> tuple[Played, list[str]]:
    """Play an hour of outage in a calm world, then the service is back; returns the states of the tasks at the end of the hour."""
    states: list[str] = []

    async def script(world: World) -> None:
        down.touch()  # noqa: ASYNC240 - as the page does
        made = [await world.submit(program.buy, f"o-{n}") for n in range(tasks)]
        await world.until(lambda: world.now >= 3600.0, within="2h")
        states.extend(task.state for task in made)
        down.unlink()  # noqa: ASYNC240
        await world.run_to_rest()

    engine = Options(heartbeat=1.0, dead_after=5.0, supervise_every=5.0, lease=15.0, poll_every=1.0)
    swarm = Swarm(layout=layout, tasks=0, storm=0.0, client_apart=True, engine=engine)
    proof = Proof(lambda stage: script(World(stage)), fails=True, attempts=100_000)
    return proof.play(0, swarm, lambda _stage, _point: None), states


@pytest.mark.parametrize(
    ("layout", "undone", "tasks"),
    [(ONE, False, 4), (ONE, True, 1), (TWO, True, 4), (TWO, False, 1), (BESIDE, True, 4)],
    ids=["one agent", "a lone task", "two agents", "two agents for one task", "one process"],
)
def test_an_hour_of_outage_undoes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: Any, undone: bool, tasks: int
) -> None:
    monkeypatch.chdir(tmp_path)
    played, states = an_hour(calm(tmp_path, undone=undone), tmp_path / "down", layout, tasks)
    assert (played.wrong, states) == ([], ["processing"] * tasks)
    assert played.outcome.ends == {"processed": tasks}
    failures = [e["failures"] for e in played.stage.history.of("counted")]
    assert sum(failures) <= tasks, "of each step at most its first failure counts"


def test_a_failed_canary_that_counts_undoes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: within the hour all are undone, as they were when a canary counted."""
    true = Circuit.ended

    def counting(self: Circuit, ticket: int, outcome: Any, now: float, jitter: float = 0.0, **_: Any) -> bool:
        return true(self, ticket, outcome, now, jitter) or ticket != -1

    monkeypatch.setattr(Circuit, "ended", counting)
    monkeypatch.chdir(tmp_path)
    _, states = an_hour(calm(tmp_path, undone=False), tmp_path / "down", ONE, 4)
    assert "undone" in states
