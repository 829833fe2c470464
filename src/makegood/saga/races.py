"""The branches of a ``first``: which is done, which have lost, and what becomes of their steps.

A ``first`` comes after all its branches and waits for one of them. The first that is done wins; if two are
done in one Decision, the earlier one in the plan. Each other branch loses, and so does one that fails while
another may still be done. If all fail, the ``first`` has failed::

                 ┌─ a ── b ─┐               a, b   a branch: steps that follow
     before ─────┼─ c ──────┼── first ── after     each other
                 └─ d ──────┘

The steps of a lost branch are marked (``Step.loser``) and turned back, as an undo of the task would do it:
what waits is skipped, requests that no agent has are withdrawn, the others awaited, and what is done or in
doubt is undone. The task goes forward meanwhile. It is processed only when nothing of a lost branch is left.

Which branch a step is of is not stored: a branch has the indices from its first step up to the next branch,
and items of an ``each`` belong to where their ``each`` is.
"""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from makegood.base.text import first_line
from makegood.errors import MissingValueError
from makegood.model.task import Step
from makegood.saga import rules
from makegood.saga.decision_builder import DecisionBuilder
from makegood.saga.held import predecessors
from makegood.saga.undo import halt, turn_back


def indices(first: Step, branch: int) -> range:
    """Return the indices of a branch, but for the items in it."""
    branches = first.plan.branches
    return range(branches[branch], branches[branch + 1] if branch + 1 < len(branches) else first.plan.idx)


def members(work: DecisionBuilder, first: Step, branch: int) -> Iterator[Step]:
    """Yield the steps of a branch."""
    todo = [*indices(first, branch)]
    for idx in todo:  # the list grows meanwhile
        step = work.step(idx)
        yield step
        if step.plan.kind == "each":
            todo += [i for i in work.followers(idx) if rules.owner(work.step(i).plan) == idx]


def is_alive(work: DecisionBuilder, first: Step, branch: int) -> bool:
    """Whether a branch has not lost; single steps of it may have, to another ``first`` inside it."""
    return any(not work.step(idx).loser for idx in indices(first, branch))


def may_be_decided(work: DecisionBuilder, first: Step) -> bool:
    """Whether all that a ``first`` waits for beside its branches has passed."""
    before = set(predecessors(first.plan)).difference(first.plan.after)
    return all(rules.passes(work.step(idx)) for idx in before)


def winners(work: DecisionBuilder, first: Step) -> Iterator[int]:
    """Yield the branches that are done, in the order of the plan."""
    for branch in range(len(first.plan.branches)):
        places = indices(first, branch)
        ends = [work.step(idx) for idx in first.plan.after if idx in places]
        if all(rules.passes(end) and not end.loser for end in ends):
            yield branch


def place_of(work: DecisionBuilder, step: Step) -> tuple[Step, int] | None:
    """Return the innermost undecided ``first`` that a step is in, and its branch there; None if it is in
    none.
    """
    firsts = [each for each in work.steps() if each.plan.kind == "first" and each.state == "waiting"]
    idx = step.plan.idx
    while idx >= 0 and firsts:
        around = [
            first for first in firsts if first.plan.branches[0] <= idx < first.plan.idx and not first.loser
        ]
        if around:
            first = min(around, key=lambda each: each.plan.idx)
            return first, next(n for n in range(len(first.plan.branches)) if idx in indices(first, n))
        idx = rules.owner(work.step(idx).plan)
    return None


def lose(work: DecisionBuilder, first: Step, branch: int) -> None:
    """Let a branch lose: nothing of it goes forward any more, and what was done is undone."""
    for each in [*members(work, first, branch)]:
        if each.loser:
            continue
        work.cancel(each)
        step = turn_back(work, halt(work, each, "skipped", "branch_lost"))
        if step.state == "waiting":
            step = work.move(step, "skipped", "branch_lost", loser=True)
        else:
            step = work.lose(step)
        work.agenda.news.append(step.plan.idx)


def fail(work: DecisionBuilder, first: Step, branch: int, cause: str) -> str:
    """Note that a branch has failed. It loses while another may be done; else returns why all have failed."""
    causes = "; ".join(filter(None, (first.error, first_line(cause))))
    first = work.put(replace(first, error=causes))
    if any(is_alive(work, first, n) for n in range(len(first.plan.branches)) if n != branch):
        lose(work, first, branch)
        return ""
    return causes


def under_way(work: DecisionBuilder) -> set[int]:
    """Return the steps of each ``first`` that has begun and has no winner, with the ``first`` itself."""
    steps: set[int] = set()
    for first in work.steps():
        if first.plan.kind == "first" and first.state == "waiting" and not first.loser:
            branches = range(len(first.plan.branches))
            inside = [step for branch in branches for step in members(work, first, branch)]
            if any(rules.has_begun(step) for step in inside):
                steps.update(step.plan.idx for step in inside)
                steps.add(first.plan.idx)
    return steps


def of_restarts(work: DecisionBuilder, restarts: Iterable[int]) -> list[Step]:
    """Return the lost steps of each ``first`` that restarts."""
    firsts = [step for idx in restarts if (step := work.step(idx)).plan.kind == "first"]
    return [
        step
        for first in firsts
        for branch in range(len(first.plan.branches))
        for step in members(work, first, branch)
        if step.loser
    ]


def value(work: DecisionBuilder, first: Step, branch: int) -> bytes:
    """Return the result of a ``first`` if this branch wins; raises ``MissingValueError``."""
    if branch >= len(first.plan.sides):
        raise MissingValueError("the plan does not say what this branch gives")
    return work.fill(first.plan.sides[branch], first.plan.payload_limit)
