"""Tasks as a Scheduler holds them in memory, and what tasks of one plan have in common."""

from typing import Any

import msgspec

from makegood.model.task import Step, TaskRecord


class ShapeRequest(msgspec.Struct, frozen=True):
    """A step that begins when those before it are done, as in all tasks of a shape.

    Its arguments are ``texts`` with a value after each but the last.
    """

    idx: int
    waiting: Step
    """The step before it begins."""
    running: Step
    """The step after it has begun."""
    asked: tuple[Any, ...]
    """Its request's fields from ``idx`` to ``within``."""
    texts: tuple[bytes, ...]
    holes: tuple[tuple[bool, int, tuple[str | int, ...]], ...]
    """(whether of a step or an input, index, path) of each value."""


class ShapeStep(msgspec.Struct, frozen=True):
    """What follows when a step is done, as in all tasks of a shape: see ``saga.fast_path``."""

    running: Step
    """The step before."""
    done: tuple[Any, ...]
    """Its fields after, up to the result."""
    consumed: list[tuple[int, int]]
    sent: tuple[ShapeRequest, ...]
    """The steps that wait for it."""
    moves: list[tuple[str, str, str, str]]
    """The transitions if all of them begin."""
    ending: list[tuple[str, str, str, str]]
    """The transitions if the task ends with it."""


class HeldTask(msgspec.Struct, eq=False):
    """A task that a Scheduler holds in memory: the record, its steps by index, and their order.

    ``saga.held.hold`` derives it. The rules read it and never change it; ``saga.held.apply`` applies a
    committed Decision to it.
    """

    task: TaskRecord
    steps: list[Step]
    followers: list[tuple[int, ...]]
    """For each step, the steps that wait for it (by ``after``, ``guards``, ``of`` or ``item_of``). A
    ``gather`` waits for every step of its ``each``.
    """
    open: list[int] = []
    """For each step, the number of predecessors that are neither done nor skipped."""
    left: int = 0
    """Steps that are neither done nor skipped."""
    strides: dict[int, ShapeStep] | None = None
    """What the rules remember of tasks of the same shape, which share it; None for a task that is alone."""
