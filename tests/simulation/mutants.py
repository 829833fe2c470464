"""The engine with one of its rules switched off: what each mutant is, and in which weather it must die.

A mutant replaces one small function or statement of the real engine or the real store, inside a test. Its worlds are those of
``makegood.testing``; the checker, or the books of the simulated services, must say that something is wrong.
``python -m tests.simulation.mutants`` looks for the seeds that kill each one.
"""

import logging
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from makegood.testing.simulator.world import Outcome
from makegood.testing.simulator.world_files import Grounds, empty_store
from makegood.workflow.app import App
from proofs.storms.shop import ONCE, SERVICES_OF_STORM, orders, storm_app
from proofs.storms.world import StormWorld
from tests.simulation import (
    mutants_around,
    mutants_asked,
    mutants_cancels,
    mutants_keeps,
    mutants_lanes,
    mutants_more,
    mutants_notes,
    mutants_rewind,
    mutants_rules,
    mutants_schedules,
    mutants_signals,
    mutants_sleeping,
    mutants_store,
    mutants_suspension,
)
from tests.simulation.mutants_making import Mutant, named_in

MUTANTS = (
    named_in(mutants_rules)
    | named_in(mutants_more)
    | named_in(mutants_store)
    | named_in(mutants_asked)
    | named_in(mutants_rewind)
    | named_in(mutants_around)
    | named_in(mutants_keeps)
    | named_in(mutants_sleeping)
    | named_in(mutants_signals)
    | named_in(mutants_suspension)
    | named_in(mutants_schedules)
    | named_in(mutants_cancels)
    | named_in(mutants_lanes)
    | named_in(mutants_notes)
)
"""All of them, by name."""


@dataclass(slots=True)
class Worlds:
    """Makes the worlds of mutants, one after another."""

    app: App = field(default_factory=storm_app)
    guarded: App = field(default_factory=partial(storm_app, breakers=True))
    template: bytes = field(default_factory=empty_store)

    def world(self, mutant: Mutant, seed: int, *, sound: bool = False) -> StormWorld:
        """Return the world of a mutant and a seed, not yet begun; the engine in it is as it is."""
        services = SERVICES_OF_STORM if sound or mutant.services is None else mutant.services
        draw_orders = orders if mutant.only is None else partial(orders, only=mutant.only)
        app = self.guarded if mutant.swarm.around is not None and mutant.swarm.around.guarded else self.app
        world = StormWorld(
            seed, app=app, orders=draw_orders, services=services, once=ONCE, swarm=mutant.swarm, grounds=Grounds(self.template)
        )  # fmt: skip
        if mutant.twist is not None:
            mutant.twist(world)
        return world

    def run(self, mutant: Mutant, seed: int, *, sound: bool = False) -> Outcome:
        """Return how the world of a mutant and a seed ended; ``sound``: that of its twin, in which every rule holds."""
        with pytest.MonkeyPatch.context() as m:
            if not sound:
                mutant.patch(m)
            outcome = self.world(mutant, seed, sound=sound).run()
        if mutant.look is not None:
            outcome.findings += mutant.look(outcome)
        return outcome


def _order(name: str) -> tuple[str, int, str]:
    return name[:1], len(name), name


def seen_by(outcome: Outcome) -> tuple[str, ...]:
    """Return the names of the invariants that are violated, in order; "other" for what is none, such as a process that died."""
    names = {re.split(r"[: ]", finding, maxsplit=1)[0] for finding in outcome.findings}
    return tuple(sorted({name if re.fullmatch(r"[IL]\d+", name) else "other" for name in names}, key=_order))


def killers(mutant: Mutant, worlds: Worlds, seeds: Iterable[int]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the seeds that kill a mutant, and what saw it."""
    for seed in seeds:
        outcome = worlds.run(mutant, seed)
        if outcome.findings:
            yield seed, seen_by(outcome)


TABLE = Path(__file__).parents[2] / "docs/internals/mutants.md"
_MARK = "<!-- made by python -m tests.simulation.mutants --record -->\n"
_HEAD = "| mutant | the rule that is off | first seed | of | kill it | seen by |\n|---|---|---|---|---|---|\n"


def recorded() -> dict[str, list[str]]:
    """Return the rows of the table: mutant, rule, first seed, seeds tried, seeds that kill, what saw it."""
    lines = TABLE.read_text().partition(_MARK)[2].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return {row[0].strip("`"): row for row in rows}


def seeds(mutant: Mutant) -> list[int]:
    """Return the seeds of a mutant, the recorded one first."""
    row = recorded().get(mutant.name)
    first = [int(row[2])] if row is not None and row[2].isdecimal() else []
    return first + [seed for seed in range(mutant.within) if seed not in first]


def record(new: Mapping[str, list[str]]) -> None:
    """Write rows into the table, in the order of the mutants."""
    rows = {**recorded(), **new}
    lines = [f"| {' | '.join(rows[name])} |\n" for name in MUTANTS if name in rows]
    before, _, _ = TABLE.read_text().partition(_MARK)
    TABLE.write_text(before + _MARK + _HEAD + "".join(lines))


def row(mutant: Mutant, count: int, kills: Sequence[tuple[int, tuple[str, ...]]]) -> list[str]:
    """Return a mutant's row of the table."""
    first = str(kills[0][0]) if kills else "none"
    by = ", ".join(sorted({name for _, names in kills for name in names}, key=_order)) or "nothing"
    return [f"`{mutant.name}`", mutant.rule.replace("``", "`"), first, str(count), str(len(kills)), by]


def main() -> None:
    """Look for the seeds that kill each mutant: names on the command line, or all. ``--seeds N``: so many instead of each one's
    own; ``--record``: into the table; ``--why``: what is wrong.
    """
    logging.disable(logging.CRITICAL)
    arguments = sys.argv[1:]
    most = int(arguments.pop(arguments.index("--seeds") + 1)) if "--seeds" in arguments else 0
    worlds = Worlds()
    for name in [name for name in arguments if not name.startswith("--")] or list(MUTANTS):
        mutant, began = MUTANTS[name], time.process_time()
        count = most or mutant.within
        kills = list(killers(mutant, worlds, range(count)))
        if "--why" in arguments and kills:
            print("\n".join(worlds.run(mutant, kills[0][0]).findings[:5]))
        clean = worlds.run(mutant, kills[0][0] if kills else 0, sound=True).findings
        cells = row(mutant, count, kills)
        seconds = (time.process_time() - began) / count
        print(
            f"{name}: {len(kills)} of {count}, first {cells[2]}, {cells[5]}; {seconds:.2f} s a seed; twin {clean[:1] or 'clean'}",
            flush=True,
        )
        if "--record" in arguments:
            record({name: cells})


if __name__ == "__main__":
    main()
