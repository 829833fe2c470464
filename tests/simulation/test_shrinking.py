"""A failing world is shrunk to the faults and orders that it needs."""

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from makegood.testing.simulator.faults import InjectedFault
from proofs.seeds import Storms, main
from proofs.shrinking import minimal, shrunk, violated
from proofs.storms.world import StormWorld
from tests.simulation.mutants import MUTANTS, Worlds, killers


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The worlds' noise is not printed."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@given(st.integers(0, 200), st.sets(st.integers(0, 199), max_size=6))
def test_what_is_needed_is_left_and_nothing_else(size: int, essentials: set[int]) -> None:
    """Whatever it is, and wherever it stands."""
    elements = {n for n in essentials if n < size}
    assert minimal(range(size), lambda some: elements <= set(some), 10_000) == sorted(elements)


def test_a_search_that_may_ask_no_more_gives_what_it_has() -> None:
    """And what it has fails still."""
    questions: list[Sequence[int]] = []

    def fails(some: Sequence[int]) -> bool:
        questions.append(some)
        return {3, 40} <= set(some)

    left = minimal(range(64), fails, 5)
    assert len(questions) == 5
    assert {3, 40} <= set(left) < set(range(64))


def test_all_that_chance_did_done_again_is_the_same_world() -> None:
    """The list of blows leaves nothing out: replayed as a plan, it gives the same history, event by event."""
    storms = Storms()
    for seed in (0, 3, 11):
        first, again = storms.world(seed), storms.world(seed)
        history = first.run().history.digest()
        again.faults.only = frozenset(first.faults.blows)
        assert again.run().history.digest() == history
        assert len(first.faults.blows) > 10


def test_a_sound_world_is_not_shrunk() -> None:
    """There is nothing wrong to look for."""
    assert shrunk(partial(Storms().world, 1)) is None


def failing(name: str, nth: int = 0) -> tuple[Callable[[pytest.MonkeyPatch], None], Callable[[], StormWorld]]:
    """Return a mutant, and what makes the ``nth`` world that kills it, from 0."""
    mutant, worlds = MUTANTS[name], Worlds()
    seed, _ = next(islice(killers(mutant, worlds, range(100)), nth, None))
    return mutant.patch, partial(worlds.world, mutant, seed)


def test_of_what_is_left_nothing_can_be_spared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all that befell a mutant that does not look a lost answer up, some are spared: a lost answer and an order are in the rest."""
    patch, make = failing("retried_without_looking", 3)
    patch(monkeypatch)
    target = violated(make().run())
    result = shrunk(make)
    assert result is not None
    assert violated(result.outcome) & target
    assert len(result.blows) < result.whole * 2 / 3
    assert {"ambiguous committed", "order"} <= {blow.what for blow in result.blows}
    for n in range(len(result.blows)):
        world = make()
        world.faults.only = frozenset(result.blows[:n] + result.blows[n + 1 :])
        assert not violated(world.run()) & target


def test_a_blow_says_itself_in_a_line() -> None:
    """People read what is left."""
    assert str(InjectedFault("commit commit", "n1", 2, "kill")) == "kill at commit commit of n1, number 3"
    assert str(InjectedFault("its time", "", 0, "operator")) == "operator at its time, number 1"


def test_the_command_tells_what_a_seed_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As text and as JSON, with exit code 1; a sound seed has nothing to shrink, and without a seed there is none."""
    run = CliRunner().invoke
    assert run(main, ["--shrink"]).exit_code == 2
    sound = run(main, ["--seed", "1", "--shrink"])
    assert (sound.exit_code, sound.output) == (0, "seed 1 finds nothing wrong\n")
    MUTANTS["undo_known_only"].patch(monkeypatch)
    monkeypatch.setattr("proofs.seeds.shrunk", partial(shrunk, most=16))
    seed = next(str(n) for n in range(60) if Storms("sequence").run(n).findings)
    arguments = ["--seed", seed, "--workflow", "sequence", "--shrink"]
    result = run(main, [*arguments, "--json"])
    assert result.exit_code == 1
    report = json.loads(result.output)
    assert 1 <= len(report["needed"]) < report["of"]
    text = run(main, arguments)
    assert text.exit_code == 1
    assert f"seed {seed} needs {len(report['needed'])} of {report['of']} faults and orders" in text.output
