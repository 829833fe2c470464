"""I4 and I5: effects, and the keys and tokens of their calls; I11 and I18: when service calls begin."""

from typing import ClassVar

from makegood.testing.checker.reading import HistoryState
from makegood.testing.checker.report import Report
from makegood.testing.checker.rule import Rule, when
from makegood.testing.history import Event

DRIFT: float = 0.01
"""The share of a time by which an agent's clock may be wrong."""


class OnceOrNotAtAll(Rule):
    """I4: under a key, 0 or 1 effects are in place."""

    name: ClassVar[str] = "I4"
    says: ClassVar[str] = "under each key an effect is in place once or not at all"
    kinds: ClassVar[frozenset[str]] = frozenset({"effect"})

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._last: dict[tuple[str, str], Event] = {}

    def before(self, event: Event, _world: HistoryState) -> None:
        """Check how many effects are in place after an effect."""
        self.saw()
        key = (event["service"], event["key"])
        if event["net"] not in (0, 1):
            earlier = self._last.get(key)
            since = f"; it was {earlier['net']} times {when(earlier)}" if earlier is not None else ""
            text = f"under key {event['key']} the effect is in place {event['net']} times at {event['service']} {when(event)}{since}"
            self.wrong(text, earlier)
        self._last[key] = event


class KeysAndTokens(Rule):
    """I5: attempts rise with every hand-out; a key belongs to one step, round and direction; a call carries
    the token of its attempt, and only handed-out attempts make calls.
    """

    name: ClassVar[str] = "I5"
    says: ClassVar[str] = "attempts and tokens rise; a key lasts for one step, round and direction"
    kinds: ClassVar[frozenset[str]] = frozenset({"sent", "call"})

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._key_of: dict[tuple[int, int, int, str], Event] = {}
        self._whose: dict[str, tuple[int, int, int, str]] = {}
        self._tokens: dict[tuple[int, int], dict[int, Event]] = {}

    def before(self, event: Event, world: HistoryState) -> None:
        """Look at what is handed out, and at what is called."""
        self.saw()
        if event.kind == "sent":
            self._check_dispatch(event, world)
        else:
            self._call(event, world)

    def _check_dispatch(self, event: Event, world: HistoryState) -> None:
        task, idx = world.task(event.task), event["idx"]
        name, step = task.name(idx), task.step(idx)
        highest = max(step.dispatches, default=0)
        if event["attempt"] <= highest:
            text = f"{name} was handed out under attempt {event['attempt']} {when(event)}, although attempt {highest} had been used"
            self.wrong(text, step.dispatches[highest].event)
        last = step.last
        if last is not None and event["round"] < last.round:
            text = f"{name} was handed out in round {event['round']} {when(event)}, after round {last.round}"
            self.wrong(text, last.event)
        if event["round"] != step.round:
            self.wrong(
                f"{name} was handed out in round {event['round']} {when(event)}, but by its moves it is in round {step.round}"
            )
        direction = "undo" if event["doing"] == "undo" else "do"
        purpose = (event.task, idx, event["round"], direction)
        first = self._key_of.setdefault(purpose, event)
        if first["key"] != event["key"]:
            text = f"{name} was asked to {event['doing']} under another key {when(event)} than {when(first)}, in the same round"
            self.wrong(text, first)
        owner = self._whose.setdefault(event["key"], purpose)
        if owner != purpose:
            self.wrong(
                f"{name}, round {event['round']}, {event['doing']} was asked {when(event)} under the key of "
                f"{world.task(owner[0]).name(owner[1])}, round {owner[2]}, {owner[3]}",
                self._key_of[owner],
            )

    def _call(self, event: Event, world: HistoryState) -> None:
        attempt, token, owner = event["attempt"], tuple(event["token"]), world.keys.get(event["key"])
        if owner is None:
            self.wrong(f"a service was called {when(event)} under a key that no commit had handed out")
            return
        task, idx = world.task(owner[0]), owner[1]
        dispatch, name = task.step(idx).dispatches.get(attempt), task.name(idx)
        if dispatch is None:
            self.wrong(
                f"{name} was called under attempt {attempt} {when(event)}, which no commit had handed out"
            )
            return
        if event["key"] != dispatch.key:
            text = f"attempt {attempt} of {name} was called {when(event)} under key {event['key']}, asked under {dispatch.key}"
            self.wrong(text, dispatch.event)
        if token[-1] != attempt:
            self.wrong(f"attempt {attempt} of {name} was called with the token {token} {when(event)}")
        calls = self._tokens.setdefault((task.id, idx), {})
        for number, earlier in calls.items():
            theirs = tuple(earlier["token"])
            if number != attempt and (theirs < token) is not (number < attempt):
                self.wrong(
                    f"attempt {attempt} of {name} has the token {token} {when(event)}, attempt {number} had {theirs}: "
                    "tokens do not rise",
                    earlier,
                )
        calls[attempt] = event


class CallsInTime(Rule):
    """I11: no service call begins after its complete-by, by the clock of the agent that makes it."""

    name: ClassVar[str] = "I11"
    says: ClassVar[str] = "no service call begins after its complete-by by the agent's own clock"
    kinds: ClassVar[frozenset[str]] = frozenset({"call"})

    def before(self, event: Event, world: HistoryState) -> None:
        """Look at the time that is left."""
        self.saw()
        if event["remaining"] <= 0:
            owner = world.keys.get(event["key"])
            name = world.task(owner[0]).name(owner[1]) if owner else event["key"]
            self.wrong(
                f"attempt {event['attempt']} of {name} called its service {when(event)}, "
                f"with {event['remaining']:.3f} s left by the agent's own clock"
            )


class KeysNotForgotten(Rule):
    """I18: once a service may have forgotten a key, makegood sends nothing under it again on its own.

    The time counts from the moment when an agent had the first request under the key. What an operator has
    sent again counts as a first request. An alert that a step was given up then says that its key is too old.
    """

    name: ClassVar[str] = "I18"
    says: ClassVar[str] = "no request is sent again under a key that its service may have forgotten"
    kinds: ClassVar[frozenset[str]] = frozenset({"taken", "given back", "call", "act", "alert"})

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._first: dict[str, Event] = {}
        self._calls: dict[str, Event] = {}
        self._has_limit = False

    def before(self, event: Event, world: HistoryState) -> None:
        """Note when a key was first taken, and look at the calls and alerts after that."""
        if event.kind == "call":
            self._call(event, world)
        elif event.kind == "alert":
            self._alert(event, world)
        elif event.kind == "act":
            if world.task(event.task).state == "error" and event["verdict"] == "applied":
                self._forget(event.task, world)
        elif event["doing"] != "probe" and (dispatch := world.dispatch_of(event)) is not None:
            if event.kind == "taken":
                self._first.setdefault(dispatch.key, event)
            elif dispatch.key not in self._calls:  # it was given back, and nothing had been sent
                self._first.pop(dispatch.key, None)

    def _forget(self, task: int, world: HistoryState) -> None:
        """An operator lets a task continue: its requests are first ones."""
        for step in world.task(task).steps.values():
            for dispatch in step.dispatches.values():
                self._first.pop(dispatch.key, None)
                self._calls.pop(dispatch.key, None)

    def _call(self, event: Event, world: HistoryState) -> None:
        key, owner = event["key"], world.keys.get(event["key"])
        if event["doing"] == "probe" or owner is None:
            return
        task, keeps = world.task(owner[0]), _keeps(world, owner)
        before, first = self._calls.get(key), self._first.get(key)
        self._calls[key] = event
        if not keeps or before is None or first is None:
            self._has_limit = self._has_limit or keeps > 0
            return
        self.saw()
        if event.at >= first.at + keeps * (1.0 + DRIFT):
            self.wrong(
                f"the {event['doing']} of {task.name(owner[1])} was sent again {when(event)}, and its service keeps a key for "
                f"{keeps:g} s from {first.at:.3f} s on",
                first,
                before,
            )

    def _alert(self, event: Event, world: HistoryState) -> None:
        if event["alert"] != "step_gave_up":
            return
        task = world.task(event.task)
        for step in task.steps.values():
            dispatch = step.last
            if task.name(step.idx) != event["step"] or dispatch is None or dispatch.doing == "undo":
                continue
            key = next(
                (
                    request.key
                    for request in step.dispatches.values()
                    if request.round == step.round and request.doing == "do"
                ),
                "",
            )
            keeps, first = _keeps(world, (task.id, step.idx, step.round)), self._first.get(key)
            if keeps and first is not None and event.at >= first.at + keeps * (1.0 + DRIFT):
                self.saw()
                if "that the service keeps it" not in event["text"]:
                    self.wrong(
                        f"{event['step']} was given up {when(event)}, and the alert does not say that its key is too old",
                        first,
                    )

    def end(self, _world: HistoryState) -> None:
        """Say that nothing was there to look at, if no action declares how long its service keeps a key."""
        if not self._has_limit and not self.report.checks[self.name]:
            self.report.excuses[self.name] = "no step was sent whose service forgets its key"


def _keeps(world: HistoryState, owner: tuple[int, int, int]) -> float:
    """Return how long the service of a step keeps its key; 0: unknown."""
    plan = world.task(owner[0]).plans.get(owner[1])
    return 0.0 if plan is None or plan.policy is None else plan.policy.keeps
