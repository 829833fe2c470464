"""How records become columns, the same for every store.

The columns of a step that never change travel as one JSON value, ``spec``; tasks of one shape have equal specs, so the
interner decodes each only once and shares the record. The yes/no fields of a step are bits of ``flags``.
"""

from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from makegood.decision import Move
from makegood.messages import Message, Request
from makegood.task import Step, StepPlan, Template

DOUBT, FINAL, STUCK, AGAIN, STOOD = 1, 2, 4, 8, 16
_INTERNED = 10_000


class Static(msgspec.Struct, frozen=True):
    """What of a task never changes: its inputs (JSON texts) and the template of its result."""

    inputs: tuple[msgspec.Raw, ...]
    returns: Template


_encode = msgspec.json.Encoder().encode
_plan = msgspec.json.Decoder(StepPlan).decode
_message = msgspec.json.Decoder(Message).decode
_request = msgspec.json.Decoder(Request).decode
_moves = msgspec.json.Decoder(list[Move]).decode
_static = msgspec.json.Decoder(Static).decode


class Interner:
    """Decodes step specs, each distinct one only once; keeps the last 10,000."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, StepPlan] = OrderedDict()
        self._untouched: OrderedDict[bytes, Step] = OrderedDict()

    def plan(self, spec: bytes) -> StepPlan:
        """Return the StepPlan that ``spec`` encodes."""
        found = self._known.get(spec)
        if found is None:
            found = self._known[spec] = _plan(spec)
            if len(self._known) > _INTERNED:
                self._known.popitem(last=False)
        return found

    def untouched(self, spec: bytes) -> Step:
        """Return the Step with the plan that ``spec`` encodes to which nothing has happened yet."""
        found = self._untouched.get(spec)
        if found is None:
            found = self._untouched[spec] = Step(self.plan(spec))
            if len(self._untouched) > _INTERNED:
                self._untouched.popitem(last=False)
        return found


def spec(plan: StepPlan) -> bytes:
    """Return a StepPlan as JSON."""
    return _encode(plan)


def static(inputs: tuple[bytes, ...], returns: Template) -> bytes:
    """Return a task's inputs and result template as JSON."""
    return _encode(Static(tuple(msgspec.Raw(i) for i in inputs), returns))


def read_static(data: bytes) -> tuple[tuple[bytes, ...], Template]:
    """Return the inputs and the result template that ``static`` wrote."""
    read = _static(data)
    return tuple(bytes(i) for i in read.inputs), read.returns


def flags(step: Step) -> int:
    """Return the yes/no fields of a step as bits."""
    known = step.doubt * DOUBT | step.final * FINAL | step.stuck * STUCK | step.again * AGAIN
    return known | step.stood * STOOD


def message(value: Message) -> bytes:
    """Return a message as JSON."""
    return _encode(value)


def read_message(data: bytes, seq: int) -> Message:
    """Return the message that ``message`` wrote, with its row's sequence."""
    return msgspec.structs.replace(_message(data), seq=seq)


def request(value: Request) -> bytes:
    """Return a request as JSON."""
    return _encode(value)


def read_request(data: bytes, within: float) -> Request:
    """Return the request that ``request`` wrote, with the seconds left as ``within``."""
    return msgspec.structs.replace(_request(data), within=within)


def moves(value: list[Move]) -> bytes:
    """Return a Decision's moves as JSON."""
    return _encode(value)


_WHEN_GUILTY = {"running": "in_doubt", "undoing": "undo_failed", "ready": "waiting"}


def guilty_moves(state: str, reason: str, steps: Sequence[tuple[str, str]]) -> bytes:
    """Return the moves of a task that is put to error, and of its steps (name, state) that were in flight, as JSON."""
    return _encode(
        [
            ("task", state, "error", reason),
            *((name, was, _WHEN_GUILTY[was], "put to error") for name, was in steps),
        ]
    )


def read_moves(data: bytes) -> list[Move]:
    """Return the moves that ``moves`` wrote."""
    return _moves(data)


def note(stale: Sequence[Message]) -> str:
    """Return what a history says of messages that changed nothing; "" when there are none."""
    return "; ".join(
        f"{m.kind} came too late for the {m.doing} of step {m.idx}, attempt {m.attempt}"
        if m.idx >= 0
        else f"{m.kind} changed nothing"
        for m in stale
    )


def address(app: str, agent: str) -> str:
    """Return an agent's address, under which its requests wait: agents of two apps may share a name."""
    return f"{app}/{agent}"
