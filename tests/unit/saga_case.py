"""One task, driven by hand: what the tests of the rules write their cases with."""

from typing import Any

from msgspec.structs import asdict

from makegood import saga
from makegood.model.decision import Decision
from makegood.model.messages import Act, Request, TaskMessage
from makegood.model.plan import Ref, StepPlan, Template
from makegood.model.policy import Policy
from makegood.model.shape import HeldTask
from makegood.model.task import Step, TaskRecord

ADA = Act("act-1", "ada", "wrong address")


def template(*parts: str | Ref) -> Template:
    """Return a template from text and refs in turn: text first and last."""
    texts = tuple(p for p in parts if isinstance(p, str))
    return Template(texts, tuple(p for p in parts if isinstance(p, Ref)))


def result_of(index: int, *path: str | int) -> Ref:
    """Return a ref to (part of) a step's result."""
    return Ref("step", index, path)


def action(idx: int, *after: int, args: Template | None = None, guards: Any = (), **policy: Any) -> StepPlan:
    """Return an action called "s<idx>" that comes after others; keyword arguments make its policy."""
    terms = Policy(**{"within": 30.0, "undo_within": 10.0, **policy})
    return StepPlan(
        idx,
        name=f"s{idx}",
        agent="bank",
        action="charge",
        args=args,
        after=after,
        guards=guards,
        policy=terms,
    )


def first(idx: int, *branches: int, after: tuple[int, ...] = (), **fields: Any) -> StepPlan:
    """Return a ``first`` called "first": ``branches`` are the first steps of its branches, ``after`` their last ones, if others.
    Each branch gives the result of its last step.
    """
    ends = after or branches
    sides = tuple(template("", result_of(end), "") for end in ends)
    return StepPlan(idx, "first", name="first", after=ends, branches=branches, sides=sides, **fields)


def changes(decision: Decision) -> dict[str, object]:
    """Return what a Decision changes, however it was found: its fields, but for the empty ones and the shape step."""
    fields = asdict(decision)
    del fields["shape_step"]
    return {name: value for name, value in fields.items() if value}


class Case:
    """A task that is held; ``say`` folds messages into one Decision and takes it for committed."""

    def __init__(self, *plans: StepPlan, claim: bool = True, **task: Any) -> None:
        record = TaskRecord(**{"id": 7, "app": "shop", "workflow": "order", "within": 3600.0, **task})
        self.held: HeldTask = saga.hold(record, [Step(plan) for plan in plans])
        self.last = Decision(record, record)
        self.now = 0.0
        if claim:
            self.say(TaskMessage("claim"))

    def say(self, *messages: TaskMessage) -> Decision:
        """Decide and commit."""
        before = (list(self.held.steps), list(self.held.open), self.held.left, self.held.task)
        self.last = decision = saga.decide(self.held, messages, saga.At(self.now, self.now))
        assert before == (self.held.steps, self.held.open, self.held.left, self.held.task)
        saga.apply(self.held, decision)
        again = saga.hold(self.held.task, self.held.steps)
        assert (again.open, again.left, again.losers) == (self.held.open, self.held.left, self.held.losers)
        assert [sorted(f) for f in again.followers] == [sorted(f) for f in self.held.followers]
        return decision

    def reply(self, idx: int, kind: str, **fields: Any) -> TaskMessage:
        """Return an answer to the request that a step has in flight."""
        step = self.held.steps[idx]
        assert step.doing is not None, f"nothing of {step.name} is in flight"
        return TaskMessage(kind, idx, step.doing, step.attempt, **fields)  # type: ignore[arg-type]

    def answer(self, idx: int, kind: str = "done", **fields: Any) -> Decision:
        """Let the request that a step has in flight be answered."""
        return self.say(self.reply(idx, kind, **fields))

    def done(self, *indices: int) -> Decision:
        """Let steps be done, one after another, each with the result {"of": its index}."""
        for idx in indices:
            self.answer(idx, value=b'{"of":%d}' % idx)
        return self.last

    def silence(self, idx: int, **fields: Any) -> Decision:
        """Let the Supervisor judge the request that a step has in flight."""
        return self.answer(idx, "expired", **{"failures": self.held.steps[idx].failures + 1, **fields})

    def due(self, idx: int) -> Decision:
        """Let a step's timer fire."""
        return self.say(TaskMessage("retry", idx))

    def act(
        self, kind: str, idx: int = -1, settlement: str = "", value: bytes | None = None
    ) -> tuple[str, str]:
        """Let an operator act; returns the verdict and its reason."""
        self.say(TaskMessage(kind, idx, settled=settlement, value=value, act=ADA))  # type: ignore[arg-type]
        (answer,) = self.last.answers
        assert answer.state == self.task.state
        return answer.verdict, answer.outcome

    @property
    def task(self) -> TaskRecord:
        """The task as it is now."""
        return self.held.task

    def step(self, idx: int) -> Step:
        """A step as it is now."""
        return self.held.steps[idx]

    @property
    def states(self) -> str:
        """The steps' states, in order, with spaces between."""
        return " ".join(s.state for s in self.held.steps)

    @property
    def asked(self) -> list[tuple[int, str]]:
        """What the last Decision asks agents for: (index, do | probe | undo)."""
        return [(q.idx, q.doing) for q in self.last.requests]

    @property
    def request(self) -> Request:
        """The one request of the last Decision."""
        (request,) = self.last.requests
        return request

    @property
    def alerts(self) -> list[str]:
        """The kinds of the last Decision's alerts."""
        return [alert.kind for alert in self.last.alerts]


def failing(*plans: StepPlan, **task: Any) -> Case:
    """Return a task whose last step has just been refused for certain."""
    case = Case(*plans, **task)
    for idx in range(len(plans) - 1):
        case.done(idx)
    case.answer(len(plans) - 1, "permanent", error="card refused")
    return case
