"""Mutants of tasks that begin later."""

from dataclasses import replace
from typing import Any

import pytest

from makegood.scheduler import store_reader
from makegood.store.sqlite import claim, submit
from tests.simulation.mutants_making import mutant
from tests.simulation.mutants_worlds import FAULTS_OF_ALL_KINDS

DELAYED = replace(FAULTS_OF_ALL_KINDS, tasks=6, delayed=0.8)
"""A little of everything, and most tasks begin later."""


@mutant(DELAYED)
def start_ignored_by_a_claim(m: pytest.MonkeyPatch) -> None:
    """A claim takes tasks that sleep whether they are due or not."""
    m.setattr(
        claim, "DUE", claim.DUE.replace("ready_seq <= ?3", "?3 > 0").replace("ready_seq <= ?4", "?4 > 0")
    )


@mutant(DELAYED)
def slept_too_short(m: pytest.MonkeyPatch) -> None:
    """A task is due after half of its sleep."""
    true = submit.sleep

    def half(draft: Any, now: float, calendar: float) -> Any:
        if (values := true(draft, now, calendar)) is None:
            return None
        ready, start_at, wall, task = values
        clock = now if wall is None else calendar
        return round((clock * 1e6 + ready) / 2), start_at, wall, task

    m.setattr(submit, "sleep", half)


@mutant(replace(DELAYED, rates={"operator": 3.0}))
def begun_by_any_message(m: pytest.MonkeyPatch) -> None:
    """A command for a task that sleeps begins it, whatever it asks for."""
    true = store_reader.restored

    def awake(load: Any) -> Any:
        load.sleeps = False
        return true(load)

    m.setattr("makegood.scheduler.commits.restored", awake)


@mutant(DELAYED)
def due_and_asleep(m: pytest.MonkeyPatch) -> None:
    """Nobody looks for tasks that are due."""
    m.setattr(claim, "DUE", claim.DUE.replace("'sleeping'", "'?'"))
