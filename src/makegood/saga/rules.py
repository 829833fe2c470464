"""The sentences of the design, one small function each.

Each function answers a plain question about records, without changing anything. The other modules of the
package say *when* a question is asked and what follows. The tests break these functions one by one and check
that the property run notices (``tests/unit/test_saga_mutants.py``). Therefore other modules call them through
the module: ``rules.certain(...)``.
"""

from collections.abc import Collection, Iterable

from msgspec.structs import replace

from makegood.base.durations import short_duration
from makegood.base.service_keys import MOST_ROUNDS, longest_key
from makegood.model.messages import TaskMessage
from makegood.model.plan import UNTIL, WAITS, StepPlan
from makegood.model.policy import Choice, Policy, verdict
from makegood.model.shape import KeptSignal
from makegood.model.states import AT_REST
from makegood.model.task import Doing, Step, TaskRecord

PASSED = frozenset({"done", "skipped"})
"""States of a step whose followers may begin."""

SETTLED = frozenset({"undone", "failed", "skipped", "waiting", "kept"})
"""States of a step with nothing (more) to undo."""

GONE = frozenset({"undone", "failed", "skipped", "kept"})
"""States in which a step of a lost branch needs nothing more."""

MOST_DEATHS = 2
"""Once this many processes died while running a step, it runs only where no Scheduler lives."""

PLAIN = Policy(within=60.0)
"""Stands in for a policy that a plan does not hold."""


def policy(step: Step) -> Policy:
    """Return what the step declares about failures."""
    return step.plan.policy or PLAIN


def is_control(plan: StepPlan) -> bool:
    """Whether this is a control step (when, merge, each, first and so on): the rules do it, and it has no
    effect anywhere.
    """
    return plan.kind != "action"


def is_until(plan: StepPlan) -> bool:
    """Whether it sleeps until a moment of the calendar."""
    return plan.kind == "sleep" and plan.action == UNTIL


def is_wait(plan: StepPlan) -> bool:
    """Whether this is a control step that may stay ready for a while: until a moment, or a signal."""
    return plan.kind in WAITS


def listens(step: Step) -> bool:
    """Whether a step waits for a signal now."""
    return step.plan.kind == "wait_for" and step.state == "ready"


def may_use(step: Step, signal: KeptSignal) -> bool:
    """Whether a step waits for signals of this name, and the signal is for any step or for this one."""
    plan = step.plan
    return plan.kind == "wait_for" and plan.action == signal.name and signal.step in ("", plan.name)


def time_is_over(due: Collection[int], step: Step) -> bool:
    """Whether the time of a wait for a signal is over. ``due``: the steps whose timers have fired."""
    return step.plan.idx in due


def may_be_given(step: Step) -> bool:
    """Whether an operator may state the value that a held task waited for in vain."""
    return step.plan.kind == "wait_for" and step.state == "failed" and not step.loser


def owner(plan: StepPlan) -> int:
    """Return the ``each`` that made this step as part of an item; -1 for none."""
    if plan.item_of >= 0:
        return plan.item_of
    return plan.of if plan.nth >= 0 and plan.kind not in ("merge", "gather") else -1


def idle(step: Step) -> bool:
    """Whether nothing of the step is in flight and no timer will wake it: it may be asked something."""
    return step.doing is None and not step.waiting


def has_begun(step: Step) -> bool:
    """Whether anything became of the step yet; of a task whose start has not come, nothing of any step."""
    return step.state != "waiting" or step.attempt > 0


def waits_for_lanes(task: TaskRecord) -> bool:
    """Whether a task at rest waits for its lanes before it goes on: it may have given them up."""
    return bool(task.lanes) and task.state in AT_REST


def are_untouched(steps: Iterable[Step]) -> bool:
    """Whether nothing is in place, in doubt, in flight or about to be."""
    return all(idle(s) and s.state in SETTLED and s.state != "kept" for s in steps)


def passes(step: Step) -> bool:
    """Whether a task that goes forward needs nothing more of a step.

    A step of a lost branch passes once nothing of it is in place or may come to be.
    """
    return step.state in (GONE if step.loser else PASSED)


def goes_forward(task: TaskRecord, step: Step) -> bool:
    """Whether a step goes forward: its task does, and its branch has not lost."""
    return task.goal == "forward" and not step.loser


def is_taken_back(task: TaskRecord, step: Step) -> bool:
    """Whether a step is being undone, or about to be: its task is, or its branch has lost meanwhile."""
    return task.state == "undoing" or (task.state == "processing" and step.loser)


def is_in_flight(step: Step) -> bool:
    """Whether a request of the step awaits its reply."""
    return step.doing is not None


def may_hear(step: Step) -> bool:
    """Whether an attempt in flight may be cancelled: that of an action, never that of an undo or a probe."""
    return step.doing == "do"


# -- what an answer means ------------------------------------------------------------------------------------


def current(step: Step, message: TaskMessage) -> bool:
    """A reply counts only for the request in flight: same kind, same attempt. All others are late or
    superseded.
    """
    return step.doing == message.doing and step.attempt == message.attempt


def certain(step: Step, *, unclear: bool) -> bool:
    """Whether ``Permanent`` means that certainly nothing happened.

    It does if no earlier try or attempt of this round is unanswered, or if the service remembers its answer
    per key, refusals too (``remembers``).
    """
    return policy(step).remembers or not (step.doubt or unclear)


def not_happened_for_good(step: Step) -> bool:
    """A probe's "not happened" settles the doubt only if the service refuses older tokens after the probe."""
    return policy(step).fences


def can_probe(step: Step) -> bool:
    """A step in doubt is probed if it has a probe, once per attempt."""
    return policy(step).probe and step.doubt and step.asked < step.attempt


def excuses(step: Step, message: TaskMessage) -> bool:
    """Whether a failure that the agent's circuit excused is not counted (see ``breaker``).

    That of an action counts all the same if the step's own probe was answered since the action failed last:
    the service is there. It does not count for an undo if its request was sent before (``again``).

    An attempt that heard of a cancel and ended did what it was asked to.
    """
    if message.since_cancel is not None:
        return True
    return message.excused and not step.again and not (message.doing == "do" and step.probe_answer)


def late_of_this_round(step: Step, attempt: int) -> bool:
    """Whether a late reply of ``attempt`` certainly belongs to the step's present round, so that an undo may
    use it.
    """
    return step.round == 1 or attempt > step.asked


# -- keys ----------------------------------------------------------------------------------------------------


def is_forgotten(step: Step, moment: float) -> bool:
    """Whether the service may have forgotten the step's key at a moment of the store's clock.

    Then the request sent again would be a new one: what it did, it would do twice.
    """
    keeps = policy(step).keeps
    return keeps > 0 and 0 < step.first_sent <= moment - keeps


def request_if_forgotten(step: Step) -> Doing | None:
    """Return what may be asked of a step whose key is forgotten; None: nothing.

    A probe may, as long as there is a doubt. Its "not happened" then ends the asking (``final``): nothing may
    be sent under the key.
    """
    return "probe" if policy(step).probe and step.doubt and not step.final else None


def probe_must_answer(step: Step, now: float) -> bool:
    """Whether a probe that asks to wait counts as unanswered.

    Past the age of the key only the probe can end the doubt. One that asks to wait forever would leave the
    task without a verdict, and operators without an alert.
    """
    return is_forgotten(step, now)


def wait_of_probe(step: Step, now: float, wait: float) -> float:
    """Return how long a probe that asks to wait is left alone: not beyond the age of the key."""
    keeps = policy(step).keeps
    return min(wait, step.first_sent + keeps - now) if keeps > 0 and step.first_sent > 0 else wait


def too_old(step: Step, now: float, wait: float = 0.0) -> str:
    """Say that a step's key is forgotten now, or will be after a wait; "" if it is not."""
    if not is_forgotten(step, now + wait):
        return ""
    is_ = "is" if is_forgotten(step, now) else "would be"
    return f"its key {is_} older than the {short_duration(policy(step).keeps)} that the service keeps it, so it is not sent again"


def first_sent(step: Step, message: TaskMessage) -> float:
    """Return when an agent had the first request under the step's present key: what is known of it, or what
    this answer tells. A probe has the key of the action, and sends nothing under it.
    """
    return step.first_sent or (message.first_sent if message.doing != "probe" else 0.0)


def first_sent_of_undo(step: Step, now: float) -> float:
    """The undo has a key of its own, which nobody has seen yet, unless its undo had failed and is tried
    again.

    Past its age an operator has it sent all the same: to the service it is a first request.
    """
    return step.first_sent if step.state == "undo_failed" and not is_forgotten(step, now) else 0.0


# -- forward -------------------------------------------------------------------------------------------------


def next_try(step: Step) -> Doing | None:
    """Return what to ask of a step in doubt to get forward; None: nothing.

    That is the action again under its key. A service without keys is asked only by the probe, and only by one
    that fences.
    """
    if step.doubt and policy(step).never:
        return "probe" if policy(step).fences else None
    return "do"


def what_follows(step: Step) -> Choice:
    """Return retry, retry after the longer wait, or the verdict: by the failures of this direction."""
    terms = policy(step)
    return verdict(step.failures, terms.threshold, terms.then)


def what_follows_undo(step: Step) -> Choice:
    """The same for the undo, by its own threshold; anything except a retry means that it is stuck."""
    return verdict(step.failures, policy(step).undo_threshold, "hold")


def past_return(steps: Iterable[Step]) -> bool:
    """Whether a step that cannot be undone is running, in doubt or done: from then on failures are held for
    an operator.
    """
    return any(
        s.plan.policy is not None and s.plan.policy.no_return and s.state in ("running", "in_doubt", "done")
        for s in steps
    )


def holds_in_doubt(step: Step) -> bool:
    """The verdict on a step that stays in doubt: whether the task is held.

    It is if ``Recover(then="hold")`` says so, or if it is unknown whether the step happened and it must not
    be repeated (``retry=mg.NEVER``).
    """
    terms = policy(step)
    return terms.then == "hold" or (terms.never and step.doubt)


def holds(task: TaskRecord, steps: Iterable[Step]) -> bool:
    """The verdict on a task: held if the workflow says so or if there is no way back; otherwise undone."""
    return task.on_failure == "hold" or past_return(steps)


def with_deadline(task: TaskRecord) -> TaskRecord:
    """A task's time begins when the task does: it has a deadline then, if it has a limit."""
    return task if task.timed or task.within is None else replace(task, timed=True)


def only_undoes(left: int, losers: int) -> bool:
    """Whether of a task that goes forward nothing is left but undos of lost branches: no deadline applies."""
    return 0 < left == losers


def may_be_later(task: TaskRecord) -> bool:
    """A deadline can be moved while it counts: the task is under way and goes forward, and its time runs."""
    return task.state == "processing" and task.goal == "forward" and task.timed


def resumes(step: Step, message: TaskMessage) -> bool:
    """Whether the next attempt begins at once: the process of the last one died before its deadline, and the
    service honours keys. The waits of ``Recover`` give a service time, which has not failed here; past the
    threshold the step may be what kills processes.
    """
    return message.runs_until > 0 and what_follows(step) == "retry"


def runs_on(step: Step, now: float) -> float:
    """Return the seconds for which an earlier attempt of the step may still run, although its process seemed
    dead. Its request under the action's key may come to the service until then, so nothing may be undone, and
    no operator may settle the step. 0 if ``now`` is 0, which is unknown.
    """
    return max(0.0, step.runs_until - now) if now else 0.0


# -- why a step failed, in words -----------------------------------------------------------------------------


def failures_noted(step: Step) -> str:
    """Return a step's last error that has words, with the number of failures, and of those with words."""
    text = silence_noted(step)
    if (step.tally is not None and step.tally.silences) or step.failures < 2:
        return text or "in doubt"
    with_words = step.failures if step.tally is None else step.tally.with_words
    return _with_note(
        text or "in doubt",
        f"{with_words} of {step.failures} failures"
        if with_words < step.failures
        else f"{with_words} failures",
    )


def silence_noted(step: Step) -> str:
    """Return a step's last error that has words, with the silences after it; "" if it has no error."""
    tally, text = step.tally, step.error or ""
    if tally is None or not tally.silences:
        return text
    then = "the process died" if tally.by_death else "no answer by its deadline"
    if tally.silences > 1:
        then = f"{tally.silences} times no answer{', the last time as the process died' if tally.by_death else ''}"
    return _with_note(text, f"{tally.with_words} of {step.failures}; then {then}")


def _with_note(text: str, note: str) -> str:
    """Return a text with a note at the end of its first line, which is all that tables show."""
    line, newline, rest = text.partition("\n")
    return f"{line} ({note}){newline}{rest}"


# -- undo ----------------------------------------------------------------------------------------------------


def to_be_undone(step: Step) -> bool:
    """Undo covers steps that are done *or in doubt*, for any reason, and stuck undos that an operator wants
    tried again.
    """
    return step.state in ("done", "in_doubt") or (step.state == "undo_failed" and step.again)


def nothing_to_undo(step: Step) -> bool:
    """Control steps, harmless effects, and effects past return are kept; those of actions are listed as
    standing.
    """
    return is_control(step.plan) or not policy(step).undoable or policy(step).no_return


def bars_undo(step: Step) -> bool:
    """Whether a follower in this state bars the undo of the step before it: reverse dependency order."""
    return step.state not in SETTLED


def lets_go(first: Step, step: Step) -> bool:
    """Whether a ``first`` does not bar the undo of a step before it: it has a winner, and the step's branch
    is not it.
    """
    return first.plan.kind == "first" and step.loser and not first.loser


def request_before_undo(step: Step) -> Doing | None:
    """Return what must give a definite answer before a step in doubt may be undone; None: nothing can, it is
    stuck.

    That is the action itself (``remembers``), or for ``retry=mg.NEVER`` a fencing probe.
    """
    if policy(step).remembers and not policy(step).never:
        return "do"
    return "probe" if policy(step).fences else None


def must_be_definite(step: Step) -> bool:
    """A step in doubt at a service without tokens is settled before its undo, or a late effect outlives the
    undo.
    """
    return policy(step).remembers or policy(step).never


# -- resubmission --------------------------------------------------------------------------------------------


def restarts(step: Step) -> bool:
    """The round, and with it the key, rises only if the earlier effect is known to be gone (failed, undone)
    or is declared harmless (kept). A step in doubt keeps its key, and a step that is done its result.

    One of a lost branch restarts with the ``first`` that decided so.
    """
    return step.state in ("failed", "undone", "kept") and not step.loser


def token_of_new_round(step: Step) -> int:
    """The attempt keeps counting over rounds: tokens are never reset."""
    return step.attempt


def why_not_resubmit(step: Step) -> str:
    """Return why this step bars a resubmission of its task; "" if it does not."""
    terms = policy(step)
    if step.state == "undo_failed" and not step.loser:
        return f"the undo of {step.name} has failed: undo the task again or settle that step first"
    if step.state == "in_doubt" and terms.never and not terms.fences:
        return f"{step.name} is in doubt and must not be repeated: settle it first"
    if step.state == "kept" and terms.no_return:
        return f"the task was undone past {step.name}, a point of no return: that is final"
    if step.state == "skipped" or restarts(step):
        return no_key_left(step)
    return ""


def no_key_left(step: Step) -> str:
    """Return why a step has no key for another round; "" if it has one.

    The readable key gets a character longer in rounds 10 and 100; the other forms have room for so many
    rounds.
    """
    terms, round_ = policy(step), step.round + 1
    if terms.key_form:
        return (
            ""
            if round_ <= MOST_ROUNDS
            else f"{step.name} has had {MOST_ROUNDS:,} rounds, as many as its keys can tell"
        )
    longest = longest_key(step.name, "undo" if terms.undoable else "do", round_)
    if not terms.key_limit or longest <= terms.key_limit:
        return ""
    return f"in round {round_} a key of {step.name} has {longest} characters, and its service takes {terms.key_limit}"
