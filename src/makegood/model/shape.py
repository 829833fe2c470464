"""Tasks as a Scheduler holds them, and what tasks of one plan have in common."""

from typing import Any

import msgspec

from makegood.model.task import Step, Task


class Sent(msgspec.Struct, frozen=True):
    """A step that begins when those before it are done, as it is in all tasks of a shape.

    ``waiting`` and ``running``: before and after; ``asked``: its request's fields from ``idx`` to ``within``. Its arguments are
    ``texts`` with a value after each but the last, ``holes``: (whether of a step or an input, index, path).
    """

    idx: int
    waiting: Step
    running: Step
    asked: tuple[Any, ...]
    texts: tuple[bytes, ...]
    holes: tuple[tuple[bool, int, tuple[str | int, ...]], ...]


class Stride(msgspec.Struct, frozen=True):
    """What follows when a step is done, as it is in all tasks of a shape: see ``saga.straight``.

    ``running``: the step before; ``done``: its fields after, up to the result; ``sent``: the steps that wait for it; ``moves``: if all
    of them begin; ``ending``: if the task ends with it.
    """

    running: Step
    done: tuple[Any, ...]
    consumed: list[tuple[int, int]]
    sent: tuple[Sent, ...]
    moves: list[tuple[str, str, str, str]]
    ending: list[tuple[str, str, str, str]]


class Held(msgspec.Struct, eq=False):
    """A task that a Scheduler holds in memory: the record, its steps by index, and who comes after whom.

    ``followers[i]`` are the steps that wait for step i (by ``after``, ``guards``, ``of`` or ``item_of``; a ``gather`` waits for
    every step of its ``each``). ``open[i]`` counts the predecessors of step i that are neither done nor skipped, ``left`` all
    such steps. Derived by ``saga.hold``; the rules read it and never change it, ``saga.apply`` puts a committed Decision into it.
    ``strides``: what the rules remember of tasks of the same shape, which share it; None for a task that is alone.
    """

    task: Task
    steps: list[Step]
    followers: list[tuple[int, ...]]
    open: list[int] = []
    left: int = 0
    strides: dict[int, Stride] | None = None
