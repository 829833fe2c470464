"""The plan of a task: its steps and their order, as a Scheduler dispatches them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Generic, Literal, Protocol, TypeVar, get_args

import msgspec
from msgspec.structs import replace

from makegood.base.arguments import judge_calls
from makegood.base.durations import Duration, exact_duration, seconds, short_duration
from makegood.base.sizes import PAYLOAD_LIMIT
from makegood.base.wall_times import moment
from makegood.errors import ConfigError
from makegood.model.attributes import Attribute, Attributes, pairs
from makegood.model.lane import NO_LANES, Lane, Lanes, lane_names
from makegood.model.policy import Policy
from makegood.payload.envelopes import Codec

R_co = TypeVar("R_co", covariant=True)

Kind = Literal["action", "when", "merge", "each", "gather", "sleep", "wait_for", "fail", "first", "done"]
"""Kinds of steps. All except "action" are control steps: the rules do them as soon as they are ready.
Those in ``WAITS`` may stay ready for a while.
"""

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
FIRST_KINDS: Final[frozenset[Kind]] = frozenset({"action", "when", "merge", "each", "gather"})
"""Kinds that every version knows."""

WAITS: Final = frozenset({"sleep", "wait_for"})
"""Kinds of steps that wait: for a moment, or for a signal."""

UNTIL: Final = "until"
"""The ``action`` of a sleep until a moment."""

OnFailure = Literal["undo", "hold"]

Signals = tuple[tuple[str, str], ...]
"""The signals that the steps of a plan wait for: names, each with the JSON schema of its values, or ""."""


class Ref(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """What fills a hole: (part of) the result of a step, a workflow input, or the item of an ``each``."""

    of: Literal["step", "input", "value", "item"]
    """"input": the function passed on a workflow input. "value": it passed on the value of that input, but of
    1, None or an enum member Python has one object, so the value may have come from elsewhere. "item" appears
    only inside the body template of the ``each`` step.
    """
    index: int
    """For "step": the step's index in the task. For "input" and "value": the position of the workflow input.
    For "item": the index of the ``each`` step.
    """
    path: tuple[str | int, ...] = ()
    """The way into the value: names of object members, positions in arrays. For "item" it starts at the
    item.
    """


INPUTS = ("input", "value")
"""The refs that a workflow input fills."""


class Template(msgspec.Struct, frozen=True, array_like=True):
    """JSON with holes: ``parts[0] + value(refs[0]) + parts[1] + ... + parts[-1]``; one more part than
    refs.
    """

    parts: tuple[str, ...]
    refs: tuple[Ref, ...] = ()


class Condition(msgspec.Struct, frozen=True, omit_defaults=True):
    """The condition of a ``when``.

    ``eq`` / ``ne`` compare ``left`` and ``right``, templates of one JSON value each, as decoded values.
    ``true``: ``left`` is JSON true. ``all`` / ``any`` / ``not`` combine ``parts``.
    """

    op: Literal["eq", "ne", "true", "all", "any", "not"]
    left: Template | None = None
    right: Template | None = None
    parts: "tuple[Condition, ...]" = ()


_LEVEL = 1 << 20


def inside(position: int, level: int = 0) -> int:
    """Return the index that names the step at ``position`` of a body: this one (level 0), the one around it
    (1), ...

    >>> inside(0), inside(2), place(inside(2, 1))
    (-1, -3, (2, 1))
    """
    return -1 - position - level * _LEVEL


def place(index: int) -> tuple[int, int]:
    """Return the (position, level) that ``inside`` encoded in a negative index."""
    level, position = divmod(-1 - index, _LEVEL)
    return position, level


class StepPlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that a step declares.

    Control steps carry their data here. ``when``: its ``condition``. ``merge``: its ``when`` in ``of``, and
    in ``sides`` the value's templates for (True, False). ``each``: its list in ``args``, ``limit``,
    ``at_once`` and ``body``. ``gather``: its ``each`` in ``of``, and in ``sides`` the one template of an
    item's value. ``sleep``: in ``args`` one value, a length of time (seconds, or a ``timedelta`` as JSON), or
    with ``action`` "until" a moment (``base.wall_times.moment_text``). ``wait_for``: in ``action`` the name
    of the signal, in ``args`` the timeout in seconds or null, in ``sides`` the value that a timeout gives, if
    there is one. ``fail``: in ``args`` the reason, a text. ``done``: in ``args`` the
    task's result. ``first``: the last steps of its branches in ``after``, the first step of each in
    ``branches``, and in ``sides`` the template of each branch's value.

    Every index in ``after``, ``guards``, ``of`` and refs that names a step of the same body is written as
    ``-1 - n`` (n: position in the body, from 0), and so is the ``idx`` of a body's step; indices >= 0 name
    steps outside. In an ``each`` inside a body, an index may also name a step of the body *around* it:
    ``inside(n, level)``, one level more for each body further out. ``body`` and the ``sides`` of a ``gather``
    are inside the body of their ``each``: level 0 is that body, level 1 the one that holds the gather.

    Item ``n``'s copy of body position j gets a fresh idx, ``of`` = the ``each``, ``nth`` = n and ``name`` +
    "[n]". Its refs of "item" become refs of "step" (the ``each``) with path (n, ...). In copies of nested
    control steps, which use ``of`` themselves, ``item_of`` names the owning ``each``.
    """

    idx: int
    """Position in the task."""
    kind: Kind = "action"
    name: str = ""
    """Unique in the task."""
    agent: str = ""
    action: str = ""
    args: Template | None = None
    after: tuple[int, ...] = ()
    """Indices of steps that must be done or skipped first."""
    guards: tuple[tuple[int, bool], ...] = ()
    """(index of a ``when``, side) that must hold, outermost first. A guard that went the other way, or was
    skipped, skips the step.
    """
    policy: Policy | None = None
    condition: Condition | None = None
    sides: tuple[Template, ...] = ()
    limit: int = 1000
    at_once: int = 0
    """Items of an ``each`` that run at the same time; 0: all."""
    body: "tuple[StepPlan, ...]" = ()
    """The template steps of one item of an ``each``."""
    branches: tuple[int, ...] = ()
    """The first step of each branch of a ``first``. A branch is all steps from there to the next branch, or
    to the ``first`` itself, and the items that its ``each`` make.
    """
    step_limit: int = 0
    """Steps of the task up to which an ``each`` makes items; 0: no limit of the app is known."""
    of: int = -1
    item_of: int = -1
    nth: int = -1
    later: Template | None = None
    """The arguments for the next round, if an operator corrected the step's inputs while it was done."""
    payload_limit: int = PAYLOAD_LIMIT
    """The app's limit in bytes; an argument must keep to it once it is filled in."""


def describe(plan: StepPlan) -> str:
    """Return what a control step is, for people: its kind, and of a wait or a ``fail`` what is known of it.

    >>> describe(StepPlan(0, "sleep", args=Template(("259200.0",)))), describe(StepPlan(0, "when"))
    ('sleep 3d', 'when')
    """
    if plan.kind == "wait_for":
        return f"waits for {plan.action}{'' if plan.args is None else f', {_length(plan.args.parts[0])}'}"
    if plan.kind not in ("sleep", "fail") or plan.args is None or plan.args.refs:
        return plan.kind
    try:
        value = msgspec.json.decode(plan.args.parts[0], type=float | str)
    except msgspec.MsgspecError:  # of another version
        return plan.kind
    if plan.kind == "fail":
        return f"fail: {value}"
    return f"sleep {short_duration(value) if isinstance(value, float) else f'until {value}'}"


def _length(text: str) -> str:
    try:
        return short_duration(float(text))
    except ValueError:  # of another version
        return "?"


class Comparison(Protocol):
    """Compares inputs of a workflow by value: the plan of one task with those of another."""

    def fingerprint(self, inputs: Sequence[bytes]) -> bytes:
        """Return what identifies the workflow and these inputs, however they are spelled."""

    def differences(self, was: Sequence[bytes], now: Sequence[bytes]) -> str:
        """Return in words how the inputs of a stored task differ from those submitted now; "" if they are
        equal.
        """


class Sealing(Protocol):
    """Encodes what a plan holds, for an app that has a codec."""

    codec: Codec

    async def seal(self, plan: "Plan[Any]", task: str) -> "Plan[Any]":
        """Return a plan as it is stored for a task, named by its id as people see it."""


MOST_DELAY: Final = 10 * 365.25 * 86_400.0
"""Seconds after its submission at which a task may begin, at most: ten years."""


class Start(msgspec.Struct, frozen=True):
    """When a task may begin: after a length of time, or at a moment of the calendar."""

    delay: float | None = None
    """Seconds from the submission, on the store's clock; None: at a moment."""
    at: float = 0.0
    """The moment, in seconds since 1970."""
    wall: str = ""
    """Its wall time with its zone (``base.wall_times``); "": a fixed moment."""

    @classmethod
    def of(cls, delay: Duration | None, at: datetime | None) -> "Start | None":
        """Return the start that options name; None: no option was given. Raises ``ConfigError``."""
        if delay is None and at is None:
            return None
        if delay is not None and at is not None:
            raise ConfigError("delay= and at= both say when the task begins: pass only one of them")
        if delay is None:
            return cls(None, *moment(at))
        length = seconds(delay, name="delay")
        if length > MOST_DELAY:
            text = exact_duration(delay) if isinstance(delay, int | float) else repr(delay)
            raise ConfigError(f"delay={text} is longer than ten years, which is the most")
        return cls(length)


class Plan(msgspec.Struct, Generic[R_co], frozen=True):
    """What a workflow function returns for its inputs: the steps, typed by the workflow's result.

    It can be printed and tested without a store; submit it with ``client.submit(plan)``.
    """

    app: str
    workflow: str
    steps: tuple[StepPlan, ...]
    inputs: tuple[bytes, ...]
    returns: Template
    comparison: Comparison
    within: float | None = None
    undo_within: float | None = None
    on_failure: OnFailure = "undo"
    key: str | None = None
    priority: int = 0
    correlation_id: str | None = None
    returns_type: Any = None
    """The annotation of the workflow's result."""
    reply_to: str | None = None
    names: tuple[str, ...] = ()
    """The names of the workflow's parameters, one for each input."""
    start: Start | None = None
    """When its task may begin; None: at once."""
    attributes: Attributes = ()
    """By which its task can be found: names and values."""
    signals: Signals = ()
    """The signals that its steps wait for."""
    lanes: Lanes = NO_LANES
    """The lanes that its task waits for."""
    notes: bool = False
    """Whether ``reply_to`` gets the notes of its actions too."""
    sealing: Sealing | None = None
    """Encodes it once its task's id is drawn; None: its app has no codec."""

    @property
    def fingerprint(self) -> bytes:
        """Identifies the workflow and its inputs by value."""
        return self.comparison.fingerprint(self.inputs)

    @judge_calls(ConfigError)
    def with_(
        self,
        *,
        key: str | None = None,
        priority: int | None = None,
        correlation_id: str | None = None,
        reply_to: str | None = None,
        notes: bool | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        attributes: Mapping[str, Attribute] | None = None,
        lane: Lane | None = None,
    ) -> "Plan[R_co]":
        """Return the plan with submission options filled in; an option that is None stays as it is.

        ``delay`` or ``at``: when the task may begin, in place of an earlier start. ``lane``: the lanes of the
        task, in place of those that its workflow names; an empty list: none.

        Raises ``ConfigError`` for attributes and lanes that a task cannot have.
        """
        return Plan(
            self.app,
            self.workflow,
            self.steps,
            self.inputs,
            self.returns,
            self.comparison,
            self.within,
            self.undo_within,
            self.on_failure,
            self.key if key is None else key,
            self.priority if priority is None else priority,
            self.correlation_id if correlation_id is None else correlation_id,
            self.returns_type,
            self.reply_to if reply_to is None else reply_to,
            self.names,
            Start.of(delay, at) or self.start,
            self.attributes if attributes is None else pairs(attributes),
            self.signals,
            self.lanes if lane is None else replace(self.lanes, names=lane_names(lane)),
            self.notes if notes is None else notes,
            self.sealing,
        )

    def __str__(self) -> str:
        """Return the steps as a table for people: index, name, agent, and the steps before it."""
        lines = [f"{self.app}.{self.workflow}: {len(self.steps)} steps"]
        for step in self.steps:
            after = ", ".join(self.steps[i].name for i in step.after) or "-"
            where = f"{step.agent}.{step.action}" if step.kind == "action" else f"({describe(step)})"
            lines.append(f"  {step.idx:>3}  {step.name:<24} {where:<28} after {after}")
        return "\n".join(lines)
