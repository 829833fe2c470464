"""What a Decision changes in the rows of its task: decided once for every store.

A store knows how to write each kind of row. Rows name their values in the order that PostgreSQL's parts have
(``commit_statement``); SQLite's statements number their values in the same order.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from makegood.model.decision import Decision
from makegood.model.shape import ShapeStep, spec
from makegood.model.states import AT_REST, ENDED, UNBEGUN
from makegood.model.task import Step
from makegood.store import rows
from makegood.store.records import NO_MOMENT

Row = tuple[Any, ...]

ShapeGroups = Mapping[tuple[ShapeStep, int, int, bool, bool], Sequence[Decision]]
"""Decisions of which only task, result and arguments differ, by: the ``ShapeStep``, epoch and priority;
whether the task is released; whether requests are handed over in memory.
"""


def moment_of(now: float, wakes: float) -> int:
    """Return the ``ready_seq`` of a task that is let go: never before the timer that is due then."""
    return NO_MOMENT if wakes == math.inf else math.ceil((now + wakes) * 1e6)


_UNDER_WAY: Final = frozenset({"waiting", "ready", "running", "in_doubt"})
"""States of a step that has no outcome yet."""

KEEP, CLEAR, SET = 0, 1, 2
"""What happens to a time in a row of a task."""


def by_shape(decisions: Iterable[Decision], claims: Collection[int]) -> tuple[ShapeGroups, list[Decision]]:
    """Return the Decisions to write by their ``ShapeStep``, and those to write one by one: they have none,
    only some of their requests are handed over in memory, or more of the task must be written.

    ``claims``: tasks whose lock is taken now.
    """
    groups: defaultdict[tuple[ShapeStep, int, int, bool, bool], list[Decision]] = defaultdict(list)
    others: list[Decision] = []
    for d in decisions:
        task, shape_step, handovers = d.before, d.shape_step, d.handovers
        if (
            shape_step is None
            or task.lost
            or task.id in claims
            or (handovers and len(handovers) != len(d.requests))
        ):
            others.append(d)
        else:
            groups[shape_step, task.epoch, task.priority, d.release, bool(handovers)].append(d)
    return groups, others


def is_plain(s: Step) -> bool:
    """Whether a step was never in trouble."""
    return s.round == 1 and not (
        s.asked
        or s.deaths
        or s.doubt
        or s.final
        or s.stuck
        or s.again
        or s.stood
        or s.probe_answer
        or s.loser
        or s.late is not None
        or s.error is not None
        or s.first_sent
        or s.runs_until
    )


def step_row(d: Decision, idx: int, s: Step) -> Row:
    """Return the values of a step's row, for any change of it."""
    return (
        d.task.id, idx, s.state, s.attempt, s.result, s.round, s.asked, s.deaths, rows.flags(s), s.late, s.error, s.first_sent or None,
        s.runs_until or None, *d.failure_counts.get(idx, (False, 0)),
    )  # fmt: skip


def rare_rows(d: Decision) -> Iterator[tuple[str, Row]]:
    """Yield the kind and the values of each row that most Decisions do not have."""
    id_ = d.task.id
    for idx, (reset, increase) in d.failure_counts.items():
        if idx >= 0 and idx not in d.steps:
            yield "count", (id_, idx, reset, increase)
    for s in d.new_steps:
        plan = s.plan
        yield "added", (
            id_, plan.idx, plan.kind, plan.name, plan.agent, plan.action, s.state, s.attempt, s.round, s.failures, s.asked, s.deaths,
            rows.flags(s), spec(plan), s.result, s.late, s.error,
        )  # fmt: skip
    for idx in d.stale_timers:
        if idx not in d.timers:  # set again in the same Decision: a row may be changed only once
            yield "dropped", (id_, idx)
    yield from _signals(d)
    for row in rows.decision_alerts(d) if d.alerts else ():
        yield "alert", row
    for ending in rows.alert_ends(d) if d.alert_ends else ():
        yield "eased", ending
    for answer in d.answers:
        act = answer.act
        yield "audit", (
            act.id, id_, answer.kind, act.who, act.why, answer.verdict, answer.outcome, answer.state, answer.change, act.db_user or None,
        )  # fmt: skip


def _signals(d: Decision) -> Iterator[tuple[str, Row]]:
    """Yield the rows of signals. One that has none yet is inserted as it is after the Decision."""
    id_, new, idx, value = d.task.id, d.new_signal, None, None
    key = None if new is None else (new.name, new.id)
    for name, signal_id, wait in d.used_signals:
        if (name, signal_id) == key:
            idx = wait
        else:
            yield "used", (id_, name, signal_id, wait)
    for signal in d.kept_signals:
        if (signal.name, signal.id) == key:
            value = signal.value
        else:
            yield "kept", (id_, signal.name, signal.id, signal.value)
    if new is not None:
        yield "new_signal", (id_, new.name, new.id, new.step, new.digest, idx, value)


def task_kind(d: Decision, *, is_claimed: bool) -> Literal["claimed", "processed", "task"] | None:
    """Return how the task's own row changes: in one of the two ways that nearly all tasks go through, in
    another ("task"), or not at all.
    """
    before, task = d.before, d.task
    if (
        task.goal != before.goal
        or task.cause != before.cause
        or task.submission != before.submission
        or task.lost != before.lost
        or d.clear_complete_by
        or d.extends
        or _failures(d)
    ):
        return "task"
    state, was = task.state, before.state
    if state == was and task.result == before.result and not is_claimed and not d.release:
        return None
    if state == "processed" and was == "processing" and d.release and not is_claimed:
        return "processed"
    if (
        was in UNBEGUN
        and (state, task.goal) == ("processing", "forward")
        and task.result is None
        and not d.release
    ):
        return "claimed"
    return "task"


def task_row(d: Decision, node: int | None, *, begins: bool, extension: float) -> Row:
    """Return the values of a task's row, for any change of it. ``begins``: its time begins now.
    ``extension``: seconds by which its deadline is extended.

    After the epoch: whether to keep, clear or set ``ended_at``; whether the task becomes pending, and draws a
    number; what to do with ``complete_by``, where an extension is added to SET; and with ``undo_by``.
    """
    before, task = d.before, d.task
    state, was = task.state, before.state
    ends = KEEP if state == was else SET if state in ENDED else CLEAR
    begins = begins or (task.timed and not before.timed)
    complete: float = (
        CLEAR if d.clear_complete_by else SET + extension if extension else SET if begins else KEEP
    )
    undo = KEEP
    if state in AT_REST:
        undo = CLEAR
    elif (
        state == "undoing"
        and was != "undoing"
        and not (was in ("pending", "sleeping") and before.goal == "undo")
    ):
        undo = SET
    return (
        task.id, state, task.goal, task.cause, task.submission, _failures(d), task.lost, task.result, None if d.release else node,
        before.epoch, ends, state != was and state in ("pending", "queued"), complete, undo,
    )  # fmt: skip


def task_topic(d: Decision) -> str | None:
    """Return the topic that a change of the task's state wakes."""
    state = d.task.state
    if state in AT_REST:
        return "ended" if state != d.before.state else None
    if state == "sleeping":  # who lets a task go looks for it in time, unless that Scheduler ends
        return "sleeping" if any(move.reason == "released" for move in d.moves) else None
    if state == "queued":
        return "queued" if state != d.before.state else None
    return "pending" if state == "pending" else None


def tells_of_steps(d: Decision) -> bool:
    """Whether to wake those who wait for single steps: only tasks that take signals have any."""
    if not d.task.signals:
        return False
    return d.task.goal != d.before.goal or any(step.state not in _UNDER_WAY for step in d.steps.values())


def _failures(d: Decision) -> int:
    return sum(increase for _, increase in d.failure_counts.values()) if d.failure_counts else 0
