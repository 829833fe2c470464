"""I20 to I22: what becomes of signals, and of the steps that wait for them."""

from typing import ClassVar

from makegood.testing.checker.reading import HistoryState
from makegood.testing.checker.report import Report
from makegood.testing.checker.rule import EPSILON, Rule, when
from makegood.testing.history import Event

Key = tuple[int, str, str]
"""The task, the name and the id of a signal."""
TIMEOUTS = frozenset({"timed_out", "no_signal"})
"""The reasons of a wait that ends by its timeout."""
_NONE = ("signalled", "no signal was sent")


def key_of(event: Event) -> Key:
    """Return the signal that an event is about."""
    return event.task, event["name"], event["id"]


def fits(signal: Event, name: str, step: str) -> bool:
    """Whether a step, which waits for signals called ``name``, may use a signal."""
    return bool(signal["name"] == name and signal["step"] in ("", step))


class OneSignalOneWait(Rule):
    """I20: a signal ends at most one wait, a wait ends by at most one signal, and the oldest comes first."""

    name: ClassVar[str] = "I20"
    says: ClassVar[str] = "one signal ends one wait, and of those of one name the oldest comes first"
    part: ClassVar[tuple[str, str] | None] = ("used", "no signal ended a wait")
    kinds: ClassVar[frozenset[str]] = frozenset({"signalled", "kept", "used", "waited"})

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._signals: dict[Key, Event] = {}
        self._uses: dict[Key, Event] = {}
        self._keeps: dict[Key, Event] = {}
        self._by_step: dict[tuple[int, int], int] = {}
        """Signals used by a step whose wait has not ended yet."""

    def before(self, event: Event, world: HistoryState) -> None:
        """Compare a use with the earlier ones."""
        if event.kind == "waited":
            self._check_end(event)
            return
        key = key_of(event)
        if event.kind == "signalled":
            self._signals[key] = event
        elif event.kind == "kept":
            self._keeps[key] = event
            if key in self._uses:
                self.wrong(
                    f"signal {event['name']} was used, and is kept again {when(event)}", self._uses[key]
                )
        else:
            self._check_use(event, key, world)

    def _check_use(self, event: Event, key: Key, world: HistoryState) -> None:
        self.saw()
        task, idx = world.task(event.task), event["idx"]
        if first := self._uses.get(key):
            self.wrong(f"signal {event['name']} ended a second wait {when(event)}", first)
        self._uses[key] = event
        self._by_step[event.task, idx] = self._by_step.get((event.task, idx), 0) + 1
        signal, name = self._signals.get(key), task.name(idx)
        if signal is None:
            self.wrong(f"{name} used a signal that nobody sent {when(event)}")
            return
        if not fits(signal, event["name"], name):
            self.wrong(f"{name} used a signal for the step {signal['step']} {when(event)}", signal)
        is_new = signal.at == event.at  # no inbox had it, so any other one came first
        for other, older in self._signals.items():
            waits = (is_new or other in self._keeps) and other not in self._uses and other[0] == event.task
            if waits and fits(older, event["name"], name) and older["seq"] < signal["seq"]:
                self.wrong(f"{name} used signal {event['id']} before {older['id']}, which came first", older)

    def _check_end(self, event: Event) -> None:
        self.saw()
        uses = self._by_step.pop((event.task, event["idx"]), 0)
        needs = int(event["reason"] == "signal_came")
        if uses != needs:
            self.wrong(f"a wait ended by {event['reason']} {when(event)}, with {uses} signals")


class TimeoutsRead(Rule):
    """I21: no wait times out before its moment, or over a signal that was committed before it."""

    name: ClassVar[str] = "I21"
    says: ClassVar[str] = "no wait times out early, or over a signal that came in time"
    part: ClassVar[tuple[str, str] | None] = ("timeout", "no step waited with a timeout")
    kinds: ClassVar[frozenset[str]] = frozenset({"signalled", "used", "timeout", "waited"})

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._open: dict[Key, Event] = {}
        self._due: dict[tuple[int, int], float] = {}

    def before(self, event: Event, world: HistoryState) -> None:
        """Look for the signals that a timeout has passed over."""
        if event.kind == "timeout":
            self._due[event.task, event["idx"]] = event["due"]
            self._began(event, world)
        elif event.kind == "signalled":
            self._open[key_of(event)] = event
        elif event.kind == "used":
            self._open.pop(key_of(event), None)
        elif event["reason"] in TIMEOUTS:
            self.saw()
            self._check_timeout(event, world)

    def _began(self, event: Event, world: HistoryState) -> None:
        plan = world.task(event.task).plans.get(event["idx"])
        if plan is None or plan.args is None:
            return
        self.saw()
        length, timeout = event["due"] - event["now"], float(plan.args.parts[0])
        if abs(length - timeout) > EPSILON:
            self.wrong(f"{plan.name} waits for {length:.3f} s {when(event)}, and declares {timeout:.3f} s")

    def _check_timeout(self, event: Event, world: HistoryState) -> None:
        task, idx = world.task(event.task), event["idx"]
        name, plan = task.name(idx), task.plans.get(idx)
        due = self._due.get((event.task, idx))
        if due is None or event["now"] < due - EPSILON:
            self.wrong(f"{name} timed out {when(event)}, and its moment had not come")
            return
        for (number, _, _), signal in self._open.items():
            if (
                number == event.task
                and plan is not None
                and fits(signal, plan.action, name)
                and signal["now"] < due - EPSILON
            ):
                self.wrong(
                    f"{name} timed out {when(event)}, and a signal had come {due - signal['now']:.3f} s before",
                    signal,
                )


class SignalsKept(Rule):
    """I22: a signal that was acknowledged is used or kept in the end, and one id is one signal."""

    name: ClassVar[str] = "I22"
    says: ClassVar[str] = "every acknowledged signal is used or kept in the end, once"
    part: ClassVar[tuple[str, str] | None] = _NONE
    kinds: ClassVar[frozenset[str]] = frozenset({"signalled", "kept", "used", "acknowledged"})

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._signals: dict[Key, Event] = {}
        self._decisions: set[Key] = set()
        self._acks: dict[Key, Event] = {}

    def before(self, event: Event, _world: HistoryState) -> None:
        """Note what becomes of each signal."""
        key = key_of(event)
        if event.kind == "signalled":
            self.saw()
            self._signals[key] = event
        elif event.kind == "acknowledged":
            if event["created"] and key in self._acks:
                self.wrong(f"signal {event['name']} [{event['id']}] was accepted twice", self._acks[key])
            if event["created"]:
                self._acks[key] = event
            if key not in self._signals:
                self.wrong(
                    f"signal {event['name']} [{event['id']}] was acknowledged, and is not in the store"
                )
        else:
            self._decisions.add(key)

    def end(self, world: HistoryState) -> None:
        """Look for signals that nobody has decided on."""
        if world.rest is None:
            return
        for key, signal in self._signals.items():
            if key not in self._decisions and key[0] not in world.removals:
                self.wrong(f"signal {signal['name']} [{signal['id']}] is neither used nor kept", signal)
