"""I24: what becomes of each moment of a schedule, judged by a walk of its own through the moments."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, ClassVar

from makegood.model.states import AT_REST
from makegood.supervisor.firings import RETIME_EVERY, RULES_EVERY
from makegood.supervisor.supervisor import LEASE
from makegood.testing.checker.reading import HistoryState
from makegood.testing.checker.report import Report
from makegood.testing.checker.rule import Rule, when
from makegood.testing.history import Event
from proofs.storms.moment_walk import Walk, WalkedMoment
from proofs.storms.zone_laws import UNIVERSAL, ZoneLaw

_BACK = 86_400.0
"""Seconds by which a calendar may be set back without moments being counted again."""
_RETIMED = RULES_EVERY + 5.0
"""Seconds after which a leader has computed all next moments by its rules."""


@dataclass(slots=True)
class _Account:
    """What a pass should do with the moments that are due."""

    fires: list[str] = field(default_factory=list)
    skips: Counter[str] = field(default_factory=Counter)
    buffer: str | None = None
    since: float = 0.0


@dataclass(slots=True)
class _Life:
    """A schedule as its events describe it."""

    keys: dict[str, int] = field(default_factory=dict)
    """The task of each key."""
    pauses: list[tuple[float, float]] = field(default_factory=list)
    """From when until when it was paused, by the calendar."""
    open_pauses: list[tuple[float, float]] = field(default_factory=list)
    """Those with moments that nobody has dealt with, perhaps."""
    keeps: bool = False
    """Whether a moment from before a pause waits for its end."""
    last: Event | None = None

    def paused(self, due: Sequence[WalkedMoment]) -> Sequence[WalkedMoment]:
        """Return the moments of pauses before the first that is in none: while a pause lasts, that waits."""
        skipped = [*takewhile(self.is_paused, due)]
        self.keeps = len(skipped) < len(due)
        return skipped

    def is_paused(self, moment: WalkedMoment) -> bool:
        """Whether a moment is one of a pause."""
        return any(start <= moment.begin < end for start, end in self.open_pauses)

    def cut(self, now: float) -> None:
        """End all pauses."""
        self.pauses = [(start, min(end, now)) for start, end in self.pauses]
        self.open_pauses = [(start, min(end, now)) for start, end in self.open_pauses]

    def settle(self, now: float) -> None:
        """Forget the pauses that are over and dealt with."""
        if not self.keeps:
            self.open_pauses = [pause for pause in self.open_pauses if pause[1] > now]


class EachMomentOnce(Rule):
    """I24: a moment becomes one task or one counted skip, by the rules of the host that deals with it."""

    name: ClassVar[str] = "I24"
    says: ClassVar[str] = "a moment of a schedule is one task or one counted skip, and none comes early"
    part: ClassVar[tuple[str, str] | None] = ("schedule", "there was no schedule")
    kinds: ClassVar[frozenset[str]] = frozenset({"schedule", "zones", "lease"})

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._lives: dict[str, _Life] = {}
        self._laws: dict[str, ZoneLaw] = {}
        self._leader = ""
        self._unrest = 0.0
        """When the leader last changed, or its zone rules."""

    def before(self, event: Event, world: HistoryState) -> None:
        """Compare what a transaction did with a schedule with what it should have done."""
        if event.kind == "zones":
            self._laws[event.node] = ZoneLaw(event["change"], event["before"], event["after"])
            if event.node == self._leader:
                self._unrest = event.at
            return
        if event.kind == "lease":
            if event["name"] == LEASE and event["verb"] == "acquired":
                self._leader, self._unrest = event["holder"], event.at
            return
        life = self._lives.setdefault(event["name"], _Life())
        if event["before"] is not None:
            self._continuity(life, event)
            self._tasks(life, event, world)
            if event["verb"] == "fire":
                self._pass(life, event, world)
            elif event["verb"] == "resume":
                self._resumption(life, event)
            self._pauses(life, event)
        life.last = event

    def end(self, world: HistoryState) -> None:
        """Look for moments that nobody has dealt with, by the rules of the leader.

        If hosts disagree, a new leader has a while to compute the next moments by its own rules, and any
        leader as long for a schedule that a host with other rules has applied.
        """
        rest = world.rest
        if rest is None or (len(set(self._laws.values())) > 1 and rest.at < self._unrest + _RETIMED):
            return
        for life in self._lives.values():
            if life.last is None or (
                self._law(life.last.node) != self._law(self._leader) and rest.at < life.last.at + RETIME_EVERY
            ):
                continue
            self.saw()
            walk, progress = self._walk(life.last, self._leader), life.last["progress"]
            late: Sequence[WalkedMoment] = walk.moments(progress, life.last["spec"]["times"]["end"])
            if life.last["pause"][0] is not None:
                late = life.paused(late)
            if late:
                self.wrong(f"in the end nobody has dealt with {late[0].key}", life.last)

    def _law(self, host: str) -> ZoneLaw:
        return self._laws.get(host, UNIVERSAL)

    def _walk(self, event: Event, host: str = "") -> Walk:
        return Walk(event["name"], event["spec"]["times"], self._law(host or event.node))

    def _continuity(self, life: _Life, event: Event) -> None:
        """Nothing but an operation of the history moves a schedule on, and never back."""
        self.saw()
        if life.last is not None and event["before"] != life.last["progress"]:
            self.wrong(f"{event['name']} is not as it was left before {when(event)}", life.last)
        since, before = event["progress"]["since"], event["before"]["since"]
        if since < before <= event["calendar"] + _BACK:
            self.wrong(f"{event['name']} goes back by {before - since:.3f} s {when(event)}", life.last)

    def _tasks(self, life: _Life, event: Event, world: HistoryState) -> None:
        """Each task has a key that no other one has, and they are counted."""
        for task, key in event["tasks"]:
            self.saw()
            if key is None:
                self.wrong(f"a task of {event['name']} has no key {when(event)}", task=task)
                continue
            other = life.keys.get(key)
            if other is not None and other not in world.removals:
                self.wrong(f"{key} has two tasks", task=task)
            life.keys[key] = task
        count = event["progress"].get("firings", 0) - event["before"].get("firings", 0)
        if count != len(event["tasks"]):
            self.wrong(
                f"{event['name']} counts {count} firings {when(event)}, of {len(event['tasks'])} tasks"
            )

    def _pass(self, life: _Life, event: Event, world: HistoryState) -> None:
        """The leading Supervisor has dealt with what was due."""
        if event["progress"].get("failures"):
            self.wrong(f"{event['name']} could not be fired {when(event)}: {event['progress']['trouble']}")
            return
        now, keys = event["calendar"], [key for _, key in event["tasks"]]
        in_force = (
            event["former_pause"][0] is not None
        )  # a clock set back is in a pause that an operator has ended
        for start, end in life.pauses:
            if keys and in_force and start <= now < end:
                self.wrong(f"{keys[0]} was fired {when(event)}, while the schedule was paused")
        account = self._account(life, event, world)
        self.saw(len(account.fires) + account.skips.total())
        fresh = [
            key
            for key in account.fires
            if key not in life.keys or life.keys[key] in (task for task, _ in event["tasks"])
            or life.keys[key] in world.removals
        ]  # fmt: skip
        if sorted(map(str, keys)) != sorted(fresh):
            self.wrong(f"{event['name']} fired {keys} {when(event)}, and {fresh} is due", life.last)
        self._compare(event, account, life.last)
        for each in self._walk(event).moments(event["before"], now):
            inside = any(start <= each.begin < end for start, end in life.pauses)
            if each.key in keys and inside:
                self.wrong(f"{each.key} was fired {when(event)}, and is of a time when it was paused")

    def _compare(self, event: Event, account: _Account, earlier: Event | None) -> None:
        skips = Counter(event["progress"].get("skips", {})) - Counter(event["before"].get("skips", {}))
        if skips != +account.skips:
            text = f"skips {dict(skips)} {when(event)}, and should skip {dict(+account.skips)}"
            self.wrong(f"{event['name']} {text}", earlier)
        buffer = (event["progress"].get("buffer") or {}).get("key")
        if buffer != account.buffer:
            self.wrong(f"{event['name']} keeps {buffer} {when(event)}, and should keep {account.buffer}")
        if abs(event["progress"]["since"] - account.since) > 1e-6:
            behind = event["progress"]["since"] - account.since
            self.wrong(f"{event['name']} is {behind:.3f} s from its last moment {when(event)}", earlier)

    def _account(self, life: _Life, event: Event, world: HistoryState) -> _Account:
        """Return what a pass should do: by the walk, the policies and what holds of the last task."""
        spec, now, before = event["spec"], event["calendar"], event["before"]
        walk = self._walk(event)
        due = [each for each in walk.moments(before, now) if each.begin <= now]
        life.keeps = False
        if _lasts(event["former_pause"], now):
            due = [*life.paused(due)]
        account = _Account(since=max([before["since"], *(each.at for each in due)]))
        blow = walk.blow(before, due[-1].at) if due else None
        if blow is not None:
            account.skips[blow.reason] += blow.skips
        live: list[WalkedMoment] = []
        for each in due:
            if life.is_paused(each):
                account.skips["paused"] += 1
            elif each.begin < now - spec.get("catch_up", _BACK):
                account.skips["missed"] += 1
            else:
                live.append(each)
        if spec.get("coalesce", True) and live:
            account.skips["coalesced"] += len(live) - 1
            live = live[-1:]
        self._overlap(event, world, account, live)
        return account

    def _overlap(
        self, event: Event, world: HistoryState, account: _Account, live: Sequence[WalkedMoment]
    ) -> None:
        """Apply what the schedule says about its last task that has not ended."""
        last, policy = event["last_task"], event["spec"].get("overlap", "skip")
        is_open = last is not None and last not in world.removals and world.task(last).state not in AT_REST
        last_key = event["before"].get("last_key", "")
        account.buffer = (event["before"].get("buffer") or {}).get("key")
        if account.buffer is not None and _lasts(event["former_pause"], event["calendar"]):
            account.buffer = None
            account.skips["paused"] += 1
        if account.buffer is not None and not is_open:
            account.fires.append(account.buffer)
            last_key, account.buffer, is_open = account.buffer, None, True
        for each in live:
            if each.key == last_key:
                continue
            if policy == "allow" or not is_open:
                account.fires.append(each.key)
                last_key, is_open = each.key, True
            elif policy == "skip" or account.buffer is not None:
                account.skips["overlap"] += 1
            else:
                account.buffer = each.key

    def _resumption(self, life: _Life, event: Event) -> None:
        """An operator has ended a pause: its moments are skipped, and counted; those behind a moment from
        before it are counted by the next pass.
        """
        now, before = event["calendar"], event["before"]
        if not _lasts(event["former_pause"], now):
            self.wrong(f"{event['name']} was resumed {when(event)}, and its pause was over")
            return
        walk = self._walk(event)
        due = [each for each in walk.moments(before, now) if each.begin <= now]
        skipped = life.paused(due)
        account = _Account(since=max([before["since"], *(each.at for each in skipped)]))
        account.skips["paused"] = len(skipped) + (before.get("buffer") is not None)
        blow = walk.blow(before, skipped[-1].at) if skipped else None
        if blow is not None:
            account.skips[blow.reason] += blow.skips
        self._compare(event, account, None)

    def _pauses(self, life: _Life, event: Event) -> None:
        """Note from when until when the schedule is paused."""
        now, (start, until) = event["calendar"], event["pause"]
        if event["verb"] == "pause":
            life.cut(now)
            pause = now, float("inf") if until is None else until
            life.pauses.append(pause)
            life.open_pauses.append(pause)
        elif event["verb"] == "resume" and start is None:
            life.cut(now)
        if event["verb"] == "fire":
            life.settle(now)


def _lasts(pause: Sequence[float | None], now: float) -> bool:
    """Whether there is a pause that is not over."""
    start, until = pause
    return start is not None and (until is None or now < until)


def reasons(event: Event) -> Mapping[str, Any]:
    """Return how many moments an operation skipped, by reason."""
    before = (event["before"] or {}).get("skips", {})
    return Counter(event["progress"].get("skips", {})) - Counter(before)
