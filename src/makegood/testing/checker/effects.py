"""I4 and I5: effects, and the keys and tokens of their calls; I11: when service calls begin."""

from typing import ClassVar

from makegood.testing.checker.reading import HistoryState
from makegood.testing.checker.report import Report
from makegood.testing.checker.rule import Rule, when
from makegood.testing.history import Event


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
            self._sent(event, world)
        else:
            self._call(event, world)

    def _sent(self, event: Event, world: HistoryState) -> None:
        task, idx = world.task(event.task), event["idx"]
        name, step = task.name(idx), task.step(idx)
        highest = max(step.asked, default=0)
        if event["attempt"] <= highest:
            text = f"{name} was handed out under attempt {event['attempt']} {when(event)}, although attempt {highest} had been used"
            self.wrong(text, step.asked[highest].event)
        last = step.last
        if last is not None and event["round"] < last.round:
            text = f"{name} was handed out in round {event['round']} {when(event)}, after round {last.round}"
            self.wrong(text, last.event)
        if event["round"] != step.round:
            self.wrong(
                f"{name} was handed out in round {event['round']} {when(event)}, but by its moves it is in round {step.round}"
            )
        direction = "undo" if event["doing"] == "undo" else "do"
        what = (event.task, idx, event["round"], direction)
        first = self._key_of.setdefault(what, event)
        if first["key"] != event["key"]:
            text = f"{name} was asked to {event['doing']} under another key {when(event)} than {when(first)}, in the same round"
            self.wrong(text, first)
        owner = self._whose.setdefault(event["key"], what)
        if owner != what:
            self.wrong(
                f"{name}, round {event['round']}, {event['doing']} was asked {when(event)} under the key of "
                f"{world.task(owner[0]).name(owner[1])}, round {owner[2]}, {owner[3]}",
                self._key_of[owner],
            )

    def _call(self, event: Event, world: HistoryState) -> None:
        attempt, token, whose = event["attempt"], tuple(event["token"]), world.keys.get(event["key"])
        if whose is None:
            self.wrong(f"a service was called {when(event)} under a key that no commit had handed out")
            return
        task, idx = world.task(whose[0]), whose[1]
        asked, name = task.step(idx).asked.get(attempt), task.name(idx)
        if asked is None:
            self.wrong(
                f"{name} was called under attempt {attempt} {when(event)}, which no commit had handed out"
            )
            return
        if event["key"] != asked.key:
            text = f"attempt {attempt} of {name} was called {when(event)} under key {event['key']}, asked under {asked.key}"
            self.wrong(text, asked.event)
        if token[-1] != attempt:
            self.wrong(f"attempt {attempt} of {name} was called with the token {token} {when(event)}")
        known = self._tokens.setdefault((task.id, idx), {})
        for other, earlier in known.items():
            theirs = tuple(earlier["token"])
            if other != attempt and (theirs < token) is not (other < attempt):
                self.wrong(
                    f"attempt {attempt} of {name} has the token {token} {when(event)}, attempt {other} had {theirs}: "
                    "tokens do not rise",
                    earlier,
                )
        known[attempt] = event


class CallsInTime(Rule):
    """I11: no service call begins after its complete-by, by the clock of the agent that makes it."""

    name: ClassVar[str] = "I11"
    says: ClassVar[str] = "no service call begins after its complete-by by the agent's own clock"
    kinds: ClassVar[frozenset[str]] = frozenset({"call"})

    def before(self, event: Event, world: HistoryState) -> None:
        """Look at the time that is left."""
        self.saw()
        if event["remaining"] <= 0:
            whose = world.keys.get(event["key"])
            name = world.task(whose[0]).name(whose[1]) if whose else event["key"]
            self.wrong(
                f"attempt {event['attempt']} of {name} called its service {when(event)}, "
                f"with {event['remaining']:.3f} s left by the agent's own clock"
            )
