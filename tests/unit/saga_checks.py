"""What must hold after every commit, for the property runs of the rules."""

import collections
import itertools
import json
import random
from collections.abc import Sequence

from makegood import saga
from makegood.model.decision import Decision
from makegood.model.messages import Request, SignalRef
from makegood.model.shape import HeldTask, KeptSignal
from makegood.model.states import AT_REST, check_step, check_task
from makegood.model.task import Step
from makegood.saga import rules
from makegood.saga.rules import SETTLED
from tests.unit.saga_rows import Record, Rows
from tests.unit.saga_service import Service


class Checked(Rows):
    """Rows that are looked at after each commit, together with the services' books."""

    def __init__(self, r: random.Random, record: Record) -> None:
        super().__init__(r, record)
        self.services: dict[int, Service] = {}
        self.values: dict[str, bytes] = {}
        self.inputs: dict[int, frozenset[tuple[int, int]]] = {}
        self.probes: set[tuple[int, int]] = set()
        self.attempts: collections.Counter[int] = collections.Counter()
        self.edges: tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]] = ((), ())
        self.by_hand = False
        self.old: Sequence[Step] = ()

    def key(self, idx: int, round_: int, direction: str = "do") -> str:
        """Return a step's key, as its service sees it."""
        return f"{idx}/{round_}/{direction}"

    def check(self, old: list[Step], decision: Decision) -> None:
        """Look at what was just committed; ``old``: the steps before."""
        for answer in decision.answers:
            if answer.verdict == "applied" and answer.kind != "settle":
                self.by_hand = answer.kind != "resubmit"
        assert self.held is not None
        self.old = old
        self._check_memory(self.held)
        self._check_moves(decision)
        for was, now in zip(old, self.steps, strict=False):
            self._check_round(was, now)
            if now.state == "undone" and was.state != "undone" and not self.by_hand:
                assert not any(self._past_return(i) for i in self._after(now.plan.idx)), "undone past return"
        for request in decision.requests:
            self._check_request(decision, request)
        self._check_counts(decision)
        self._check_rest(decision)
        self._check_waits(decision)
        self._check_races()
        self._check_limits()

    def _check_waits(self, decision: Decision) -> None:
        """No wait that is ready, and none that has timed out, leaves a signal alone that it may use."""
        timeouts = {move.name for move in decision.moves if move.reason in ("timed_out", "no_signal")}
        unread: list[KeptSignal | SignalRef] = [m.signal for m in self.inbox if m.signal is not None]
        for step in self.steps:
            if step.plan.kind != "wait_for":
                continue
            if step.state == "ready":
                assert not any(rules.may_use(step, each) for each in self.signals), (
                    "a kept signal is not used"
                )
            if step.name in timeouts:
                names = [each.name for each in [*self.signals, *unread] if each.step in ("", step.name)]
                assert step.plan.action not in names, "timed out over a signal"

    def _check_limits(self) -> None:
        """An each that is done had no more items than it may."""
        for each in self.steps:
            if each.plan.kind == "each" and each.state == "done":
                assert len(json.loads(each.result or b"[]")) <= each.plan.limit, (
                    f"{each.name} is over its limit"
                )

    def _check_races(self) -> None:
        """A race that is decided has one winner; every step of its other branches has lost."""
        for race in self.steps:
            if race.plan.kind != "first" or race.loser:
                continue
            branches = [*race.plan.branches, race.plan.idx]
            marks = [{s.loser for s in self.steps[a:b]} for a, b in itertools.pairwise(branches)]
            alive = sum(False in each for each in marks)
            assert race.state != "done" or alive == 1, f"{race.name} has {alive} winners"
            assert race.state != "waiting" or alive or race.error is None, f"{race.name} has no branch left"

    def _check_memory(self, memory: HeldTask) -> None:
        """What is held in memory is what another Scheduler would load, but for verdicts not yet read."""
        again = saga.hold(self.task, self.steps)
        assert again.open == memory.open
        assert (again.left, again.losers) == (memory.left, memory.losers)
        assert [*memory.signals] == self.signals
        assert [sorted(f) for f in again.followers] == [sorted(f) for f in memory.followers]
        unread = {m.idx for m in [*self.inbox, *self.memory]}
        for i, step in enumerate(self.load()):
            assert i in unread or step == memory.steps[i], ("memory and rows differ", step.name)

    def _check_moves(self, decision: Decision) -> None:
        """Every move is in the table and has a reason."""
        for move in decision.moves:
            assert move.why
            if move.of_task:
                check_task(move)
            else:
                check_step(move, control=not move.name.startswith("action"))

    def _past_return(self, idx: int) -> bool:
        step = self.steps[idx]
        return step.plan.policy is not None and step.plan.policy.no_return and step.state == "kept"

    def _check_request(self, decision: Decision, request: Request) -> None:
        idx, before = request.idx, (request.idx, request.attempt - 1)
        step = self.steps[idx]
        was = self.old[idx] if idx < len(self.old) else step
        policy = step.plan.policy
        assert policy is not None, "a control step was asked of an agent"
        assert request.attempt > self.attempts[idx], "an attempt that is not above all before"
        self.attempts[idx] = request.attempt
        if policy.keeps and request.doing != "probe" and request.first_sent:
            assert self.now < request.first_sent + policy.keeps, "sent again under a key that is too old"
        if request.doing == "undo":
            assert self.now >= self.run_on.get(idx, 0.0), "undone while an earlier attempt may still run"
            if not (was.loser and was.state == "undoing"):  # asked again, whatever has lost meanwhile
                self._check_order(idx)
            mine = self.values.get(self.key(idx, request.round))
            assert request.late is None or request.late == mine, "the late result of another round"
        elif request.doing == "do":
            self._check_predecessors(step)
            self.inputs[idx] = self._before(idx)
        else:
            turned = decision.before.goal != decision.task.goal or was.loser != step.loser
            straight = before in decision.used_requests and not turned
            assert not straight or before not in self.probes or policy.never, "probed twice in a row"
            self.probes.add((idx, request.attempt))

    def _check_predecessors(self, step: Step) -> None:
        """A step begins when all that is before it has passed: read from the plan alone."""
        plan, steps = step.plan, self.steps
        assert all(steps[i].state in ("done", "skipped") for i in plan.after), "before its predecessors"
        for when, side in plan.guards:
            assert steps[when].state == "done", "on a branch that is not taken"
            assert (steps[when].result == b"true") is side, "on a branch that is not taken"
        if plan.nth >= 0:
            each = steps[plan.of]
            assert each.state == "done", "an item of an each that is not decided"
            assert plan.nth < len(json.loads(each.result or b"[]")), "an item that is not there"
            branch = each.plan.at_once
            busy = {
                s.plan.nth
                for s in steps
                if (s.plan.item_of if s.plan.item_of >= 0 else s.plan.of) == each.plan.idx
                and s.plan.nth >= 0
                and s.state in ("running", "in_doubt")
            }
            assert not branch or len(busy) <= branch, "more items at once than allowed"

    def _check_counts(self, decision: Decision) -> None:
        """Counts start at 0 for each direction and at resubmission, and never run past the threshold."""
        turn = decision.task.goal not in (decision.before.goal, "hold")
        if turn or decision.clear_complete_by:
            assert not any(s.failures for s in self.steps if not s.loser), "counts do not start at 0"
        for step in self.steps:
            policy = step.plan.policy
            if policy is not None:
                undoing = step.state in ("undoing", "undo_failed", "undone")
                # A last probe may be asked, and unanswered, before the verdict.
                most = max(policy.threshold + policy.probe, policy.undo_threshold if undoing else 0) + 2
                assert step.failures <= most, "tried again past the threshold"

    def _check_rest(self, decision: Decision) -> None:
        """At rest nothing is in flight; nothing done or in doubt is left in an undone task; error is always alerted."""
        if self.task.state in AT_REST:
            assert not self.rows, "in flight at rest"
            assert not self.timers, "a timer at rest"
            assert all(s.doing is None and not s.waiting for s in self.load()), "in flight at rest"
            assert decision.release
            entry = any(move.of_task and move.after == "error" for move in decision.moves)
            assert bool(decision.alerts) or not entry, "error without an alert"
        if self.task.state == "undone":
            left = [s.name for s in self.steps if s.state not in SETTLED]
            assert not left, ("left in an undone task", left)

    def _check_round(self, was: Step, now: Step) -> None:
        assert now.attempt >= was.attempt, "the attempt fell"
        assert now.round >= was.round
        policy = now.plan.policy
        if now.round > was.round and policy is not None and policy.undoable and not policy.no_return:
            assert was.state in ("failed", "undone", "skipped", "waiting"), ("a new round over", was.state)

    def _reach(self, idx: int, edges: Sequence[Sequence[int]]) -> set[int]:
        ancestors: set[int] = set()
        todo = [idx]
        while todo:
            step = self.steps[todo.pop()]
            for other in edges[step.plan.idx]:
                after = self.steps[other]
                if step.loser and after.plan.kind == "first" and not after.loser:
                    continue  # it has another winner, and does not depend on this
                if other not in ancestors:
                    ancestors.add(other)
                    todo.append(other)
        return ancestors

    def _after(self, idx: int) -> set[int]:
        """Return all steps that come after this one."""
        return self._reach(idx, self._edges()[0])

    def _edges(self) -> tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]]:
        """Return followers and predecessors of every step."""
        if len(self.edges[0]) != len(self.steps):
            followers = saga.hold(self.task, self.steps).followers
            before: list[list[int]] = [[] for _ in followers]
            for i, after in enumerate(followers):
                for f in after:
                    before[f].append(i)
            self.edges = (followers, before)
        return self.edges

    def _check_order(self, idx: int) -> None:
        """When a step is undone, everything after it is settled, in the record and in the services' books."""
        for i in self._after(idx):
            after = self.steps[i]
            assert after.state in SETTLED, (
                "undo out of order",
                self.steps[idx].name,
                after.name,
                after.state,
            )
            final = after.state == "kept" or self.steps[i].plan.kind != "action"
            policy = after.plan.policy
            if (
                not final
                and i in self.services
                and policy is not None
                and policy.undoable
                and not policy.no_return
            ):
                assert not self.services[i].standing(), ("what came after still stands", after.name)

    def _before(self, idx: int) -> frozenset[tuple[int, int]]:
        """Return the actions that come before a step, with the round in which they stand."""
        ancestors = self._reach(idx, self._edges()[1])
        steps = [self.steps[i] for i in sorted(ancestors)]
        return frozenset(
            (s.plan.idx, s.round)
            for s in steps
            if s.state != "skipped"
            and not s.loser
            and s.plan.policy is not None
            and not s.plan.policy.no_return
        )
