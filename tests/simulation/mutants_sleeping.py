"""Mutants of tasks that begin later, and of workflows that wait."""

from dataclasses import replace
from typing import Any

import pytest

from makegood.saga import waits
from makegood.scheduler import store_reader
from makegood.store.sqlite import claim, submit
from tests.simulation.mutants_making import mutant
from tests.simulation.mutants_worlds import FAULTS_OF_ALL_KINDS, SCHEDULERS

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
    true = store_reader.restore

    def awake(load: Any) -> Any:
        load.sleeps = False
        return true(load)

    m.setattr("makegood.scheduler.commits.restore", awake)


@mutant(DELAYED)
def due_and_asleep(m: pytest.MonkeyPatch) -> None:
    """Nobody looks for tasks that are due."""
    m.setattr(claim, "DUE", claim.DUE.replace("'sleeping'", "'?'"))


NAPPING = replace(FAULTS_OF_ALL_KINDS, tasks=6)
"""A little of everything, for tasks that all wait."""


@mutant(NAPPING, "nap")
def sleep_ends_too_soon(m: pytest.MonkeyPatch) -> None:
    """A step sleeps for half of its length."""
    true = waits.length
    m.setattr(waits, "length", lambda value: true(value) / 2)


@mutant(
    replace(NAPPING, layout=SCHEDULERS, tasks=20, services={}, rates={"kill": 0.5, "orderly stop": 0.5}),
    "nap",
)
def timer_from_the_claim(m: pytest.MonkeyPatch) -> None:
    """A Scheduler that takes a task over ends its sleeps at once."""
    true = store_reader.restore

    def awake(load: Any) -> Any:
        load.due.update(dict.fromkeys(load.due, 0.0))
        return true(load)

    m.setattr("makegood.scheduler.commits.restore", awake)


@mutant(replace(NAPPING, drift=0.004, rates={"clock jump": 1.0}), "nap")
def sleeps_by_its_own_clock(m: pytest.MonkeyPatch) -> None:
    """A Scheduler ends sleeps by its own clock, which may be faster than the store's."""
    m.setattr("makegood.scheduler.task_table.saga.is_wait", lambda _plan: False)
