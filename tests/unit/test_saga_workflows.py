"""The plan builder and the rules agree: a workflow run by the rules gives what the same lines give as plain Python."""

import inspect
import random
import typing
from dataclasses import dataclass

import msgspec
import pytest

from makegood import saga
from makegood.declare.outcomes import NOTHING
from makegood.model.messages import Request, TaskMessage
from makegood.model.task import Step, TaskRecord
from makegood.workflow.app import App
from makegood.workflow.verbs import each, parallel, when

shop = App("shop")
bank = shop.agent("bank")


@dataclass
class Line:
    sku: str
    n: int
    parts: list[str]


@bank.action(complete_within="20s", undo=NOTHING)
def load(lines: list[Line]) -> list[Line]:
    return lines


@bank.action(complete_within="20s", undo=NOTHING)
def pick(line: Line) -> str:
    return f"{line.n} x {line.sku}"


@bank.action(complete_within="20s", undo=NOTHING)
def fit(part: str, into: str, of: int) -> str:
    return f"{part} into {into} of {of}"


@bank.action(complete_within="20s", undo=NOTHING)
def count(lines: list[Line]) -> int:
    return len(lines)


@bank.action(complete_within="20s", undo=NOTHING)
def many(n: int) -> bool:
    return n > 1


@bank.action(complete_within="20s", undo=NOTHING)
def wrap(what: str) -> str:
    return f"({what})"


@bank.action(complete_within="20s", undo=NOTHING)
def join(parcels: list[str]) -> str:
    return "+".join(parcels)


@shop.workflow
def order(lines: list[Line]) -> tuple[list[list[str]], str, str]:
    items = load(lines)
    total = count(items)

    def furnish(line: Line) -> list[str]:
        part_ = pick(line)
        return each(line.parts, lambda part: fit(part, part_, total), at_once=1)

    pieces = each(items, furnish)
    parcels = each(
        items,
        lambda line: when(line.n == 1, then=lambda: wrap(pick(line)), otherwise=lambda: pick(line)),
        at_once=2,
    )
    some = many(total)
    parcel = when(some, then=lambda: join(parcels), otherwise=lambda: wrap("one parcel"))
    first, second = parallel(wrap(parcel), wrap("bill"))
    return pieces, first, second


def plainly(lines: list[Line]) -> object:
    """The same, in plain Python."""
    total = len(lines)
    pieces = [[fit.fn(part, pick.fn(line), total) for part in line.parts] for line in lines]
    parcels = [wrap.fn(pick.fn(line)) if line.n == 1 else pick.fn(line) for line in lines]
    parcel = join.fn(parcels) if many.fn(total) else wrap.fn("one parcel")
    return [pieces, wrap.fn(parcel), wrap.fn("bill")]


def carry_out(request: Request) -> bytes:
    """Do what an agent does."""
    fn = shop._find_action(request.agent, request.action).fn
    values = msgspec.json.decode(request.args)
    types = typing.get_type_hints(fn)
    assert list(values) == list(inspect.signature(fn).parameters)
    return msgspec.json.encode(
        fn(**{name: msgspec.convert(value, types[name]) for name, value in values.items()})
    )


def run(lines: list[Line], r: random.Random) -> object:
    """Run the workflow through the rules, answering requests in any order."""
    plan = order.plan(lines)
    memory = saga.hold(
        TaskRecord(1, "shop", "order", inputs=plan.inputs, returns=plan.returns),
        [Step(p) for p in plan.steps],
    )
    decision = saga.decide(memory, [TaskMessage("claim")])
    saga.apply(memory, decision)
    waiting = list(decision.requests)
    while waiting:
        request = waiting.pop(r.randrange(len(waiting)))
        decision = saga.decide(
            memory, [TaskMessage("done", request.idx, "do", request.attempt, value=carry_out(request))]
        )
        saga.apply(memory, decision)
        waiting += decision.requests
    assert memory.task.state == "processed", [(s.name, s.state, s.error) for s in memory.steps]
    assert memory.task.result is not None
    return msgspec.json.decode(memory.task.result)


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [Line("desk", 1, ["leg", "top"])],
        [Line("desk", 1, ["leg", "top"]), Line("lamp", 2, []), Line("shelf", 1, ["board"])],
        [Line("cup", n, [f"handle {i}" for i in range(n)]) for n in range(6)],
    ],
    ids=len,
)
def test_the_rules_give_what_plain_python_gives(lines: list[Line]) -> None:
    """Nested each, when, parallel, lanes: in whatever order the agents answer."""
    for seed in range(10):
        assert run(lines, random.Random(seed)) == plainly(lines)
