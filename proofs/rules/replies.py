"""I2, I3 and I13: which replies count, and that nothing else does."""

from collections.abc import Iterable
from types import MappingProxyType
from typing import ClassVar

from makegood.testing.checker.reading import Dispatch, HistoryState, StepNow, TaskNow
from makegood.testing.checker.report import Report
from makegood.testing.checker.rule import EPSILON, Rule, when
from makegood.testing.history import Event

_COMPLETIONS = frozenset({("do", "done"), ("probe", "happened")})
_UNDONE = frozenset({("undo", "done"), ("undo", "refused")})


class OneCompletion(Rule):
    """I2: a step completes once a round, and is undone once a round; a hand-out is answered once."""

    name: ClassVar[str] = "I2"
    says: ClassVar[str] = "at most one accepted completion per task, step and round"
    kinds: ClassVar[frozenset[str]] = frozenset({"accepted"})

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._completions: dict[tuple[int, int, int, str], Event] = {}

    def before(self, event: Event, world: HistoryState) -> None:
        """Check whether such a reply was accepted before."""
        task, idx = world.task(event.task), event["idx"]
        if (dispatch := world.dispatch_of(event)) is None:
            return  # I3 reports it.
        self.saw()
        if dispatch.answer is not None:
            self.wrong(
                f"attempt {dispatch.attempt} of {task.name(idx)} was answered twice: {dispatch.answer['reply']} "
                f"{when(dispatch.answer)} and {event['reply']} {when(event)}",
                dispatch.answer,
            )
            return
        reply = (event["doing"], event["reply"])
        completion = "completed" if reply in _COMPLETIONS else "undone" if reply in _UNDONE else ""
        if completion:
            earlier = self._completions.setdefault((event.task, idx, dispatch.round, completion), event)
            if earlier is not event:
                self.wrong(
                    f"{task.name(idx)} was {completion} twice in round {dispatch.round}: by attempt {earlier['attempt']} "
                    f"{when(earlier)} and by attempt {event['attempt']} {when(event)}",
                    earlier,
                )


class InTime(Rule):
    """I3: the accepted attempt is the current one, asked for the same thing, not judged, and in time by the
    store's clock.
    """

    name: ClassVar[str] = "I3"
    says: ClassVar[str] = "only the reply to the current attempt is accepted, in time by the store's clock"
    kinds: ClassVar[frozenset[str]] = frozenset({"accepted"})

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._has_times: bool | None = None

    def end(self, _world: HistoryState) -> None:
        """Report if no event gave the time of a reply: half of the rule was then not checked."""
        if self._has_times is False:
            self.report.excuses["I3, in time"] = "no event `accepted` says when its reply came"

    def before(self, event: Event, world: HistoryState) -> None:
        """Compare the reply with what was asked last."""
        task, idx, attempt = world.task(event.task), event["idx"], event["attempt"]
        self.saw()
        last, name = task.step(idx).last, task.name(idx)
        if last is None:
            self.wrong(f"a reply of {name} was accepted {when(event)}, which had not been asked")
        elif last.attempt != attempt:
            self.wrong(
                f"attempt {attempt} of {name} was accepted {when(event)}, superseded by attempt {last.attempt} "
                f"{when(last.event)}",
                last.event,
            )
        elif last.doing != event["doing"]:
            text = f"{name} was asked to {last.doing} under attempt {attempt}; a reply to {event['doing']} was accepted {when(event)}"
            self.wrong(text, last.event)
        elif last.verdict is not None:
            text = f"attempt {attempt} of {name} was judged silent {when(last.verdict)} and its reply accepted {when(event)}"
            self.wrong(text, last.verdict)
        complete_by = event.fields.get("complete_by")
        came = event.fields.get("came")  # Not ``now``: a Scheduler may commit later than its reply came.
        self._has_times = bool(self._has_times) or came is not None
        if complete_by is not None and came is not None and came > complete_by + EPSILON:
            self.wrong(
                f"the reply to attempt {attempt} of {name} was accepted {when(event)}; it came "
                f"{came - complete_by:.3f} s after its complete-by on the store's clock"
            )


_NEEDS = MappingProxyType(
    {
        ("running", "done"): frozenset({"done"}),
        ("running", "failed"): frozenset({"permanent", "refused"}),
        ("running", "ready"): frozenset({"later"}),
        ("in_doubt", "done"): frozenset({"happened"}),
        ("undoing", "undone"): frozenset({"done", "refused"}),
    }
)
"""Moves that need an accepted reply (or an operator's statement)."""


class RefusedChangesNothing(Rule):
    """I13: no step moves because of a reply that was not accepted in that very commit."""

    name: ClassVar[str] = "I13"
    says: ClassVar[str] = "a refused reply changes nothing"
    kinds: ClassVar[frozenset[str]] = frozenset({"refused", "late", "moved"})

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._turned_away: dict[tuple[int, int], Event] = {}

    def before(self, event: Event, world: HistoryState) -> None:
        """Note refusals, and check every move that needs a reply."""
        if event.kind == "moved":
            task = world.task(event.task)
            for move in event["moves"]:
                if move[0] != "task" and not task.is_control(move[0]):
                    self._moved(event, task, move[0], (move[1], move[2]))
        elif event.kind == "late" or event["what"] == "reply":
            self.saw()
            self._turned_away[event.task, event.fields.get("idx", -1)] = event

    def _moved(self, event: Event, task: TaskNow, idx: int, move: tuple[str, str]) -> None:
        replies, step = _NEEDS.get(move), task.step(idx)
        reply = task.fresh.get(idx)
        if move == ("in_doubt", "failed"):
            if _denied(step) or "settle" in task.acts:
                return
        elif replies is None or reply in replies or ("settle" in task.acts and move[0] == "in_doubt"):
            return
        refusal = self._turned_away.get((task.id, idx))
        reason = (
            f"the reply to attempt {refusal['attempt']} had been refused {when(refusal)}" if refusal else ""
        )
        self.wrong(
            f"{task.name(idx)} went from {move[0]} to {move[1]} {when(event)} without an accepted reply that says so"
            + (f"; {reason}" if reason else ""),
            refusal,
        )


def _denied(step: StepNow) -> bool:
    """Whether a probe has reported, since the action was last asked, that it did not happen."""
    dispatches: Iterable[Dispatch] = reversed(step.dispatches.values())
    for dispatch in dispatches:
        if dispatch.round != step.round or dispatch.doing == "do":
            return False
        if dispatch.answer is not None and dispatch.answer["reply"] in ("not_happened", "refused"):
            return True
    return False
