"""Each rule matters: with one of them broken, the same runs that hold for the true rules find a violation.

A mutant replaces one small function of ``makegood.saga`` (or breaks one promise that a service, an agent or an operator has
made) and must die within a bounded number of seeds. ``test_the_true_rules_live`` runs the same seeds unbroken.
"""

import random
from collections.abc import Callable, Iterable
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from makegood import saga
from makegood.errors import MakegoodError
from makegood.model import states
from makegood.model.decision import Decision
from makegood.model.messages import TaskMessage
from makegood.model.shape import HeldTask, KeptSignal, ShapeStep
from makegood.model.task import Step
from makegood.saga import (
    acts,
    control,
    decisions,
    fast_path,
    forward,
    races,
    replies,
    rules,
    signals,
    suspension,
    undo,
)
from makegood.saga.decision_builder import DecisionBuilder
from tests.unit.saga_rows import Record
from tests.unit.saga_world import World
from tests.unit.test_saga_world import SEEDS as SEEDS_OF_ALL

SEEDS = 2500
RARE = {
    "first_time_lost_on_the_fast_path": 860,
    "forgets_refusal": 141,
    "no_return_done_only": 199,
    "no_settle": 307,
    "probe_says_nothing": 2000,
    "shape_step_whatever_the_goal": 193,
    "superseded_reply_counts": 247,
}
"""Mutants that few seeds notice, each with one that does: the search begins there, and goes through all others if need be."""
Patch = Callable[[pytest.MonkeyPatch], dict[str, bool] | None]


def first_violation(seeds: Iterable[int], **defects: bool) -> tuple[int, str] | None:
    """Return the first seed that finds a violation, and which; None: none of ``seeds`` does."""
    for seed in seeds:
        try:
            with_poison = seed % 20 == 0
            World(
                random.Random(seed), Record(), hostile=seed % 2 == 1, with_poison=with_poison, **defects
            ).run()
        except (AssertionError, MakegoodError) as error:
            return seed, f"{type(error).__name__}: {error}"
    return None


MUTANTS: dict[str, Patch] = {}


def mutant(patch: Patch) -> Patch:
    """Name a mutant by its function."""
    MUTANTS[patch.__name__] = patch
    return patch


def also_lawful(m: pytest.MonkeyPatch, before: str, after: str) -> None:
    """Open the table of moves, so that not the table but the services' books find the mutant."""
    table: Any = {state: {**following} for state, following in states.STEP_MOVES.items()}
    table[before][after] = (*table[before].get(after, ()), *get_args(states.StepReason))
    m.setattr(states, "STEP_MOVES", table)


# -- what an answer means ----------------------------------------------------------------------------------------------


@mutant
def failed_on_doubt(m: pytest.MonkeyPatch) -> None:
    """Permanent is taken for certain although an earlier try is unanswered."""
    m.setattr(rules, "certain", lambda _step, **_: True)


@mutant
def transient_is_failed(m: pytest.MonkeyPatch) -> None:
    """Silence and giving up are taken for a certain refusal."""
    answers = replies._ANSWERS["do"]
    m.setitem(answers, "gave_up", answers["refused"])
    m.setitem(answers, "expired", answers["refused"])


@mutant
def probe_no(m: pytest.MonkeyPatch) -> None:
    """A probe's "not happened" is believed although the service does not fence."""
    m.setattr(rules, "not_happened_for_good", lambda _step: True)


@mutant
def superseded_reply_counts(m: pytest.MonkeyPatch) -> None:
    """A reply counts whatever attempt it is of."""
    m.setattr(rules, "current", lambda step, message: step.doing == message.doing)


@mutant
def probes_without_end(m: pytest.MonkeyPatch) -> None:
    """A step in doubt is probed more than once per attempt."""
    m.setattr(rules, "can_probe", lambda step: rules.policy(step).probe and step.doubt)


@mutant
def silence_counted_twice(m: pytest.MonkeyPatch) -> None:
    """The rules count the silence that the Supervisor has counted."""
    original = replies._count_failure

    def twice(w: DecisionBuilder, step: Step, message: TaskMessage) -> Step:
        step = original(w, step, message)
        return replace(step, failures=step.failures + 1) if message.kind == "expired" else step

    m.setattr(replies, "_count_failure", twice)


@mutant
def probe_says_nothing(m: pytest.MonkeyPatch) -> None:
    """A failure that an agent's circuit has excused does not count, although the step's own probe was answered."""
    m.setattr(rules, "excuses", lambda step, message: message.excused and not step.again)


# -- forward and verdict -----------------------------------------------------------------------------------------------


@mutant
def never_retried(m: pytest.MonkeyPatch) -> None:
    """A step at a service without keys is asked again when in doubt."""
    m.setattr(rules, "next_try", lambda _step: "do")


@mutant
def no_return_done_only(m: pytest.MonkeyPatch) -> None:
    """Only a step that is done counts as past return, not one running or in doubt."""
    m.setattr(
        rules,
        "past_return",
        lambda steps: any(rules.policy(s).no_return and s.state == "done" for s in steps),
    )


@mutant
def undo_past_return(m: pytest.MonkeyPatch) -> None:
    """The point of no return is ignored."""
    m.setattr(rules, "past_return", lambda _steps: False)


@mutant
def hold_no_withdraw(m: pytest.MonkeyPatch) -> None:
    """A held task neither drops its timers nor withdraws its requests."""
    m.setattr(forward, "clear", lambda _work: None)


@mutant
def starts_too_early(m: pytest.MonkeyPatch) -> None:
    """One predecessor that has passed is enough."""
    true = DecisionBuilder._pass

    def early(w: DecisionBuilder, idx: int) -> None:
        true(w, idx)
        w.agenda.free.extend(w.followers(idx))

    m.setattr(DecisionBuilder, "_pass", early)
    m.setattr(DecisionBuilder, "open", lambda _work, _idx: 0)


@mutant
def no_lanes(m: pytest.MonkeyPatch) -> None:
    """All items of an ``each`` begin at once, whatever it says."""
    m.setattr(control, "_lasts", lambda _body: [])


@mutant
def both_branches(m: pytest.MonkeyPatch) -> None:
    """A branch that is not taken is run all the same."""
    m.setattr(control, "not_taken", lambda _work, _plan: False)


@mutant
def threshold_ignored(m: pytest.MonkeyPatch) -> None:
    """A step in doubt is asked again for ever."""
    m.setattr(rules, "what_follows", lambda _step: "retry")


# -- tasks of one shape -----------------------------------------------------------------------------------------------------------


def shape_steps_taken_as(m: pytest.MonkeyPatch, view: Callable[[HeldTask], HeldTask]) -> None:
    """Let the straight road see a task otherwise than it is, where it goes by what is known from others."""
    true = fast_path._take

    def blind(memory: HeldTask, message: TaskMessage, shape_step: ShapeStep) -> Decision | None:
        decision = true(view(memory), message, shape_step)
        if decision is not None:
            decision.before = memory.task
        return decision

    m.setattr(fast_path, "_take", blind)


@mutant
def shape_step_whatever_the_goal(m: pytest.MonkeyPatch) -> None:
    """A task that is to be undone begins its next step all the same."""
    shape_steps_taken_as(
        m, lambda memory: replace(memory, task=replace(memory.task, goal="forward", state="processing"))
    )


@mutant
def shape_step_whoever_is_awaited(m: pytest.MonkeyPatch) -> None:
    """A step begins with the first of its predecessors that is done."""
    shape_steps_taken_as(m, lambda memory: replace(memory, open=[1] * len(memory.open)))


# -- undo --------------------------------------------------------------------------------------------------------------


@mutant
def undo_running(m: pytest.MonkeyPatch) -> None:
    """The undo does not await what is in flight: it is taken for in doubt at once."""

    def impatient(w: DecisionBuilder) -> None:
        for step in w.steps():
            if step.doing == "do":
                w.move(replace(step, doing=None), "in_doubt", "withdrawn", doubt=True)
        clear(w)

    clear = undo.clear
    m.setattr(undo, "clear", impatient)


@mutant
def nobody_hears(m: pytest.MonkeyPatch) -> None:
    """A task is undone, and the actions that run never learn it."""
    m.setattr(rules, "may_hear", lambda _step: False)


@mutant
def undo_hears(m: pytest.MonkeyPatch) -> None:
    """Whatever is in flight hears: probes and undos too."""
    m.setattr(rules, "may_hear", rules.is_in_flight)


@mutant
def hearing_is_a_failure(m: pytest.MonkeyPatch) -> None:
    """An attempt that ended because nobody needs it counts like one whose tries ran out."""
    true = rules.excuses
    m.setattr(rules, "excuses", lambda step, message: true(step, replace(message, since_cancel=None)))


@mutant
def heard_is_nothing_happened(m: pytest.MonkeyPatch) -> None:
    """An attempt that ended because nobody needs it is taken for one that did nothing: it is not undone."""
    true = replies._ANSWERS["do"]["gave_up"]

    def believes(w: DecisionBuilder, step: Step, message: TaskMessage) -> None:
        if message.since_cancel is None:
            true(w, step, message)
        else:
            w.move(step, "failed", "refused", doubt=False)

    m.setitem(replies._ANSWERS["do"], "gave_up", believes)


@mutant
def two_requests_in_flight(m: pytest.MonkeyPatch) -> None:
    """The undo begins while the step's probe is in flight."""
    m.setattr(rules, "idle", lambda step: not step.waiting)


@mutant
def undo_in_forward_order(m: pytest.MonkeyPatch) -> None:
    """A step is undone before those that came after it."""
    m.setattr(rules, "bars_undo", lambda _step: False)


@mutant
def undo_known_only(m: pytest.MonkeyPatch) -> None:
    """Only what is known to be done is undone, not what is in doubt."""
    m.setattr(rules, "to_be_undone", lambda step: step.state == "done")
    m.setattr(rules, "SETTLED", rules.SETTLED | {"in_doubt"})


@mutant
def no_settle(m: pytest.MonkeyPatch) -> None:
    """A step in doubt at a service without tokens is undone without a definite answer."""
    m.setattr(rules, "must_be_definite", lambda step: rules.policy(step).never)


@mutant
def never_undone_blindly(m: pytest.MonkeyPatch) -> None:
    """A step in doubt at a service without keys is undone although nobody can tell whether it happened."""
    m.setattr(rules, "must_be_definite", lambda step: rules.policy(step).remembers)


@mutant
def undo_threshold_ignored(m: pytest.MonkeyPatch) -> None:
    """An undo is asked again for ever."""
    m.setattr(rules, "what_follows_undo", lambda _step: "retry")


@mutant
def counts_go_on(m: pytest.MonkeyPatch) -> None:
    """The undo inherits the failures of the action."""
    begin = undo.begin_undo

    def inherit(w: DecisionBuilder, reason: states.Reason, **details: str) -> None:
        counts = {step.plan.idx: step.failures for step in w.steps()}
        begin(w, reason, **details)
        for step in w.steps():
            if step.failures != counts[step.plan.idx]:
                w.put(replace(step, failures=counts[step.plan.idx]))
                w.out.failure_counts.pop(step.plan.idx, None)

    m.setattr(forward, "begin_undo", inherit)


# -- resubmission ------------------------------------------------------------------------------------------------------


@mutant
def round_in_doubt(m: pytest.MonkeyPatch) -> None:
    """A step in doubt gets a new key when the task is resubmitted."""
    also_lawful(m, "in_doubt", "waiting")
    true = rules.restarts
    m.setattr(rules, "restarts", lambda step: true(step) or step.state == "in_doubt")


@mutant
def same_round(m: pytest.MonkeyPatch) -> None:
    """A step that was undone is done again under its old key."""
    begin = acts._begin_round
    m.setattr(acts, "_begin_round", lambda w, step: begin(w, replace(step, round=step.round - 1)))


@mutant
def reset_token(m: pytest.MonkeyPatch) -> None:
    """The attempt begins at 0 with each round."""
    m.setattr(rules, "token_of_new_round", lambda _step: 0)


@mutant
def first_time_forgotten(m: pytest.MonkeyPatch) -> None:
    """A retry goes out as if nobody had had its key."""
    m.setattr(rules, "first_sent", lambda step, _message: step.first_sent)


@mutant
def time_of_the_action_for_its_undo(m: pytest.MonkeyPatch) -> None:
    """The key of the undo counts as sent when the action was."""
    m.setattr(rules, "first_sent_of_undo", lambda step, _now: step.first_sent)


@mutant
def new_time_for_a_stuck_undo(m: pytest.MonkeyPatch) -> None:
    """An undo that is tried again counts as sent for the first time."""
    m.setattr(rules, "first_sent_of_undo", lambda _step, _now: 0.0)


@mutant
def new_round_with_the_old_time(m: pytest.MonkeyPatch) -> None:
    """The new key of a round counts as sent when the old one was."""
    begin = acts._begin_round

    def keep(w: DecisionBuilder, step: Step) -> None:
        begin(w, step)
        w.put(replace(w.step(step.plan.idx), first_sent=step.first_sent))

    m.setattr(acts, "_begin_round", keep)


@mutant
def first_time_lost_on_the_fast_path(m: pytest.MonkeyPatch) -> None:
    """A step that was asked for "later", and begins again, goes out as if nobody had had its key."""
    plain = fast_path._plain
    m.setattr(fast_path, "_plain", lambda step: plain(replace(step, first_sent=0.0)))


@mutant
def undo_before_deadline(m: pytest.MonkeyPatch) -> None:
    """An undo begins while an attempt may still run whose process seemed dead."""
    m.setattr(rules, "runs_on", lambda _step, _now: 0.0)


@mutant
def kept_is_done(m: pytest.MonkeyPatch) -> None:
    """A kept step counts as done when the task is resubmitted, with what it was made from gone."""
    begin = acts._begin_round

    def keep(w: DecisionBuilder, step: Step) -> None:
        if step.state == "kept" and step.plan.kind == "action" and step.result is not None:
            w.put(replace(step, state="done"))
        else:
            begin(w, step)

    m.setattr(acts, "_begin_round", keep)


@mutant
def resubmitted_over_a_failed_undo(m: pytest.MonkeyPatch) -> None:
    """A task is resubmitted although an undo has failed."""
    m.setattr(rules, "why_not_resubmit", lambda _step: "")


# -- schedulers that die -----------------------------------------------------------------------------------------------


@mutant
def nothing_repaired(m: pytest.MonkeyPatch) -> None:
    """A withdrawal that a dead Scheduler did not hear is forgotten."""
    m.setattr(saga, "repair", lambda _memory, _messages: [])


@mutant
def withdrawn_means_silent_probe(m: pytest.MonkeyPatch) -> None:
    """A request that is gone is always taken for the action's."""
    repair = saga.repair

    def wrong(memory: HeldTask, messages: list[TaskMessage]) -> list[TaskMessage]:
        return [replace(message, doing="do") for message in repair(memory, messages)]

    m.setattr(saga, "repair", wrong)


@mutant
def claims_forget_what_waits(m: pytest.MonkeyPatch) -> None:
    """A Scheduler that takes over looks at nothing but its messages."""
    m.setattr(decisions, "look_at_all", lambda _work: None)


# -- keys that are forgotten -------------------------------------------------------------------------------------------


@mutant
def keys_last_forever(m: pytest.MonkeyPatch) -> None:
    """A request is sent again under a key that its service has forgotten."""
    m.setattr(rules, "is_forgotten", lambda _step, _moment: False)


@mutant
def old_key_is_certain(m: pytest.MonkeyPatch) -> None:
    """A step whose key is too old to be sent again counts as not done."""
    given_up = forward._give_up

    def wrong(work: DecisionBuilder, step: Step, wait: float = 0.0) -> None:
        if rules.is_forgotten(step, work.at.now + wait):
            step = work.put(replace(step, doubt=False))
        given_up(work, step, wait)

    m.setattr(forward, "_give_up", wrong)


@mutant
def agent_sends_late(_: pytest.MonkeyPatch) -> dict[str, bool]:
    """An agent sends whatever the queue holds, however long it was there."""
    return {"careless": True}


# -- signals -----------------------------------------------------------------------------------------------------------


@mutant
def signal_used_twice(m: pytest.MonkeyPatch) -> None:
    """A signal that has ended a wait is still there for the next one."""

    def take(w: DecisionBuilder, step: Step) -> KeptSignal | None:
        signal = next((each for each in w.signals if rules.may_use(step, each)), None)
        if signal is not None:
            w.out.used_signals.append((signal.name, signal.id, step.plan.idx))
        return signal

    m.setattr(signals, "take", take)


@mutant
def early_signal_dropped(m: pytest.MonkeyPatch) -> None:
    """A signal that comes before anybody waits for it is forgotten by who holds the task."""
    true = signals.keep

    def keep(w: DecisionBuilder, message: TaskMessage) -> None:
        before = w.signals
        true(w, message)
        if not w.agenda.waits:
            w.signals = before

    m.setattr(signals, "keep", keep)


@mutant
def newest_signal_first(m: pytest.MonkeyPatch) -> None:
    """Of the signals that are kept the last one is used first."""
    true = signals.take

    def take(w: DecisionBuilder, step: Step) -> KeptSignal | None:
        w.signals = [*reversed(w.signals)]
        signal = true(w, step)
        w.signals = [*reversed(w.signals)]
        return signal

    m.setattr(signals, "take", take)


@mutant
def any_signal_will_do(m: pytest.MonkeyPatch) -> None:
    """A wait ends with a signal of any name."""
    m.setattr(rules, "may_use", lambda step, _signal: step.plan.kind == "wait_for")


@mutant
def timeout_unread(m: pytest.MonkeyPatch) -> None:
    """Timers are folded where they come, also before signals."""
    m.setattr(signals, "before_timers", lambda messages: messages)


@mutant
def claim_forgets_the_signals(m: pytest.MonkeyPatch) -> None:
    """A signal for a task that nobody holds is kept, and its claim does not look at the waits."""
    true = signals.keep

    def keep(w: DecisionBuilder, message: TaskMessage) -> None:
        before = [*w.agenda.waits]
        true(w, message)
        if w.task.state == "pending":
            w.agenda.waits = before

    m.setattr(signals, "keep", keep)


# -- races -------------------------------------------------------------------------------------------------------------


@mutant
def loser_not_undone(m: pytest.MonkeyPatch) -> None:
    """What a lost branch did stays in place, and the task is processed."""
    m.setattr(rules, "GONE", rules.GONE | {"done"})


@mutant
def two_winners(m: pytest.MonkeyPatch) -> None:
    """The other branches do not lose."""
    m.setattr(races, "lose", lambda _w, _first, _lane: None)


@mutant
def ends_before_its_losers(m: pytest.MonkeyPatch) -> None:
    """A task is processed while lost branches are being undone."""
    m.setattr(rules, "passes", lambda step: step.loser or step.state in rules.PASSED)


@mutant
def limit_not_counted(m: pytest.MonkeyPatch) -> None:
    """An each makes as many items as its list has."""
    m.setattr(control, "excess", lambda _w, _plan: "")


@mutant
def wins_unfinished(m: pytest.MonkeyPatch) -> None:
    """A branch is done although one of its last steps is not."""
    true = races.winners

    def hasty(w: DecisionBuilder, first: Step) -> Any:
        return [*true(w, first)] or [0]

    m.setattr(races, "winners", hasty)


# -- promises of others ------------------------------------------------------------------------------------------------


@mutant
def forgets_refusal(_: pytest.MonkeyPatch) -> dict[str, bool]:
    """A service that is declared with ``remembers`` forgets its refusals."""
    return {"forgets": True}


@mutant
def agent_hides_its_tries(_: pytest.MonkeyPatch) -> dict[str, bool]:
    """An agent does not say that an earlier try of the same attempt is unanswered."""
    return {"certain": True}


@mutant
def hasty_operator(_: pytest.MonkeyPatch) -> dict[str, bool]:
    """An operator says *failed* while something can still arrive."""
    return {"hasty": True}


@mutant
def let_go_while_it_runs(m: pytest.MonkeyPatch) -> None:
    """A task is let go although another of its steps is in flight."""
    m.setattr(rules, "is_in_flight", lambda _step: False)


@mutant
def sleeps_until_its_last_timer(m: pytest.MonkeyPatch) -> None:
    """A task with several timers wakes with the last of them."""
    m.setattr(suspension, "min", max, raising=False)


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_dies(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With this rule broken, a violation is found."""
    defects = MUTANTS[name](monkeypatch) or {}
    begin = RARE.get(name, 0)
    violation = first_violation((*range(begin, SEEDS), *range(begin)), **defects)
    assert violation is not None, f"{name} lives: {MUTANTS[name].__doc__}"
    print(f"{name}: seed {violation[0]}, {violation[1]}")


def test_there_are_enough_mutants() -> None:
    """Nobody has taken mutants away without saying so here."""
    assert len(MUTANTS) == 62


def test_the_true_rules_live() -> None:
    """The same seeds find nothing in the true rules, so it is the mutation that dies: of the first ones ``test_saga_world`` says so."""
    assert SEEDS_OF_ALL < SEEDS
    assert first_violation(range(SEEDS_OF_ALL, SEEDS)) is None
