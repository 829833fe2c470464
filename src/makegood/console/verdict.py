"""The verdict on a task: one sentence that answers its page, and what comes next."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from makegood.base.counts import quantity
from makegood.base.durations import brief
from makegood.console.attempts import Course
from makegood.errors import StoreError
from makegood.model.policy import Policy, verdict
from makegood.store.views import StepView, TaskDetail
from makegood.story.lanes import queue_text
from makegood.story.steps import join_names
from makegood.story.trouble import cause_sentence, trouble
from makegood.story.undo_preview import Preview, needs_settling, undo_order
from makegood.story.waits import is_asleep, listens, signal_text, sleep_text, start_text

AGAIN: Final = "{} asked again, under the same key"
MOST_TRIES: Final = 1000
"""Further tries of a step that are counted, at most."""


@dataclass(frozen=True, slots=True)
class Countdown:
    """Seconds until the next planned act."""

    seconds: float
    share: float
    """Of the wait, what is left, 0 to 100."""
    words: str


@dataclass(frozen=True, slots=True)
class TaskVerdict:
    """What is said first."""

    tone: str
    """"", ok, run, undo, doubt, need."""
    icon: str
    badge: str
    """The look of the badge in the head."""
    label: str
    """The words of the badge."""
    title: str
    more: str = ""
    next: tuple[str, ...] = ()
    """What comes next, in order; ``{}`` in the first stands for the countdown."""
    countdown: Countdown | None = None


_LOOKS: Final[Mapping[str, tuple[str, str, str, str]]] = {
    "unreadable": ("need", "error", "error", "{}"),
    "processed": ("ok", "done", "processed", "processed"),
    "undone": ("undo", "undone", "undone", "undone"),
    "undone, clean": ("undo", "undone", "undone", "undone, clean"),
    "undo incomplete": ("need", "error", "error", "error · undo incomplete"),
    "held": ("need", "error", "error", "error · held"),
    "pending": ("", "pending", "pending", "pending"),
    "sleeping": ("", "waiting", "sleeping", "sleeping"),
    "queued": ("", "lock", "queued", "queued"),
    "holding": ("doubt", "waiting", "failing", "processing · held"),
    "in doubt": ("doubt", "doubt", "failing", "processing · attempt {} · failing"),
    "failing": ("doubt", "run", "failing", "processing · attempt {} · failing"),
    "later": ("run", "waiting", "waiting", "waiting"),
    "unclaimed": ("run", "waiting", "waiting", "waiting for an agent"),
    "processing": ("run", "run", "processing", "processing"),
    "undo stuck": ("need", "error", "undoing", "undoing · one is stuck"),
    "undo failing": ("doubt", "undoing", "failing", "undoing · attempt {} · failing"),
    "undoing": ("undo", "undoing", "undoing", "undoing"),
}
"""Of each case: tone, icon, look and words of the badge; ``{}``: the attempt, or the task's state."""


def _verdict(
    case: str,
    title: str,
    more: str | None = "",
    *,
    fill: object = "",
    steps: Sequence[str] = (),
    countdown: Countdown | None = None,
) -> TaskVerdict:
    tone, icon, badge, words = _LOOKS[case]
    return TaskVerdict(tone, icon, badge, words.format(fill), title, more or "", tuple(steps), countdown)


def verdict_of(detail: TaskDetail, course: Course, *, has_scheduler: bool = True) -> TaskVerdict:
    """Return the verdict. ``has_scheduler``: whether a process is alive that advances tasks."""
    if detail.unreadable:
        text = "; ".join(detail.unreadable)
        return _verdict("unreadable", "Rows of this task cannot be read", text, fill=detail.task.state)
    verdict = _AT[detail.task.state](detail, course)
    waits = (
        detail.task.state in ("pending", "sleeping", "queued", "processing", "undoing")
        and detail.task.starts is None
    )
    if not has_scheduler and waits:
        title = "No Scheduler is running: nothing continues until one does"
        verdict = replace(
            verdict, tone="need", icon="error", title=title, more=verdict.title, next=(), countdown=None
        )
    requests = [
        f"{request.act.who or 'An operator'} asked for {request.kind}; no Scheduler has decided it yet."
        for request in detail.asked
    ]
    return replace(verdict, more=" ".join(filter(None, (verdict.more, *requests))))


# -- at rest -------------------------------------------------------------------------------------------------


def _processed_verdict(detail: TaskDetail, course: Course) -> TaskVerdict:
    start = course.began.get(detail.task.submission, detail.task.created)
    end = detail.task.ended if detail.task.ended is not None else start
    title = f"Processed: {quantity(detail.count('done'), 'step')} done in {brief(max(0.0, end - start))}"
    return _verdict("processed", title, "Nothing more will happen.")


def _undone_verdict(detail: TaskDetail, course: Course) -> TaskVerdict:
    final = [step.name for step in detail.steps if step.stands and step.no_return]
    harmless = [step.name for step in detail.steps if step.stands and not step.no_return]
    case = "undone" if final else "undone, clean"
    if detail.tally is not None and (count := detail.count("kept")):
        case = "undone"
        title = (
            f"Undone; {quantity(count, 'effect')} {_is(count)} still in place, harmless or without a way back"
        )
    elif final:
        title = f"Undone, but {join_names(final)} cannot be undone and {_is(len(final))} still in place"
    elif harmless:
        title = (
            f"Undone, clean: only {join_names(harmless)} {_is(len(harmless))} still in place, and harmless"
        )
    else:
        title = "Undone, clean: nothing is in place"
    undos = [
        (a.asked, a.ended)
        for a in course.attempts
        if a.doing == "undo" and a.ended is not None and a.submission == detail.task.submission
    ]
    took = ""
    if undos and any(step.state == "undone" for step in detail.steps):
        span = max(end for _, end in undos) - min(start for start, _ in undos)
        effects = quantity(detail.count("undone"), "effect")
        took = f"makegood undid {effects} in {brief(max(0.0, span))}, in reverse order."
    cause = cause_sentence(detail.task.cause, course.cause)
    rest = "Nothing more will happen, and nobody is needed."
    return _verdict(case, title, " ".join(filter(None, (cause, took, rest))))


def _reason_of_failed_undo(step: StepView, course: Course) -> str:
    """Say why an undo failed: the service refused it, or did not answer until makegood gave up."""
    attempts = [
        a for a in course.of(step.idx) if a.doing == "undo" and a.ended is not None and a.round == step.round
    ]
    if attempts and attempts[-1].kind in ("permanent", "refused"):
        return f"The service refused for good: “{step.error}”."
    times = f" after {quantity(len(attempts), 'attempt')}" if attempts else ""
    return f"makegood gave up{times}; the last one ended with “{step.error}”."


def _error(detail: TaskDetail, course: Course) -> TaskVerdict:
    failures = [step for step in detail.steps if step.state == "undo_failed"]
    failed_names = [step.name for step in failures]
    if detail.task.goal != "undo":
        cause = detail.task.cause or next(iter(trouble(detail)), "") or "no cause recorded"
        finals = [s.name for s in detail.steps if s.no_return and s.state in ("done", "in_doubt")]
        reason = f"{join_names(finals)} cannot be undone, so " if finals else ""
        return _verdict(
            "held", f"Held: {cause}", f"{reason}makegood waits for you. Nothing moves until you act."
        )
    unsettled_names = [name for name in needs_settling(detail) if name not in failed_names]
    behind = [
        preview.step.name
        for preview in (undo_order(detail) if detail.tally is None else ())
        if not preview.stays and preview.step.name not in (*failed_names, *unsettled_names)
    ]
    subject = f"nobody can tell whether {join_names(unsettled_names)} happened"
    if failures:
        others = max(0, detail.count("undo_failed") - len(failures))
        subject = f"the undo of {join_names(failed_names, more=others)} failed"
    waits = f", and {join_names(behind)} {'wait' if len(behind) > 1 else 'waits'} behind it" if behind else ""
    reasons = [_reason_of_failed_undo(step, course) for step in failures if step.error][:1]
    text = " ".join((*reasons, "Nothing moves until you act."))
    return _verdict("undo incomplete", f"Undo incomplete: {subject}{waits}", text)


# -- under way -----------------------------------------------------------------------------------------------


def _pending(detail: TaskDetail, _course: Course) -> TaskVerdict:
    goal = ", and will undo it" if detail.task.goal == "undo" else ""
    return _verdict("pending", f"Pending: the next free Scheduler claims it{goal}")


def _queued_verdict(detail: TaskDetail, _course: Course) -> TaskVerdict:
    goal = " Then makegood undoes it." if detail.task.goal == "undo" else ""
    text = "It goes when its lanes have room, in order of submission."
    return _verdict("queued", f"Queued: it {queue_text(detail.lanes)}", f"{text}{goal}")


def _sleeping(detail: TaskDetail, course: Course) -> TaskVerdict:
    if detail.task.starts is None:  # it was let go: what it waits for says all
        return _undoing(detail, course) if detail.task.goal == "undo" else _processing(detail, course)
    return _verdict("sleeping", f"Sleeping: it {start_text(detail.task, detail.now)}")


def _asleep(detail: TaskDetail) -> TaskVerdict | None:
    """Return the verdict on a task that waits for a moment: the first of them; None if it waits for none."""
    asleep = [step for step in detail.steps if is_asleep(step)]
    if not asleep:
        return None
    step = min(asleep, key=lambda s: s.due or 0.0)
    return _verdict("sleeping", f"Sleeping: {step.name} {sleep_text(step, detail.now)}".rstrip())


def _listening(detail: TaskDetail) -> TaskVerdict | None:
    """Return the verdict on a task that waits for a signal: that with the first timeout; None if it waits for
    none.
    """
    listening = [step for step in detail.steps if listens(step)]
    if not listening:
        return None
    step = min(listening, key=lambda s: math.inf if s.due is None else s.due)
    left = None if step.due is None else _countdown(step, "to its timeout", step.due)
    text = signal_text(msgspec.structs.replace(step, due=None)).removeprefix("waits for ")
    return _verdict("later", f"Waiting for {text}", countdown=left)


def _processing(detail: TaskDetail, course: Course) -> TaskVerdict:
    actions = [step for step in detail.steps if step.kind == "action"]
    doubts = [step for step in actions if step.state == "in_doubt"]
    running = [step for step in actions if step.state == "running"]
    resting = [step for step in actions if step.waiting and step.state == "ready"]
    if detail.task.goal != "forward":
        subject = join_names([s.name for s in running + doubts]) or "its steps"
        return _verdict("holding", f"Held: makegood waits for what is in flight: {subject}")
    if doubts:
        return _in_doubt(detail, doubts[0], course)
    if step := next((step for step in running + resting if step.failures), None):
        title = f"{step.name} has not succeeded yet: attempt {step.attempt}"
        return _verdict("failing", title, step.error, fill=step.attempt)
    if not running and not resting and (verdict := _asleep(detail)) is not None:
        return verdict
    if not running and resting:
        step = min(resting, key=lambda s: s.due or 0.0)
        ring = _countdown(step, "to the next attempt", step.due or 0.0)
        return _verdict("later", f"Waiting: {step.name} is asked again later", step.error, countdown=ring)
    if not running:
        return _losing(actions) or _listening(detail) or _verdict("processing", "Processing")
    names = [step.name for step in running]
    if all(step.taken_by is None and step.doing is not None for step in running):
        agents = join_names(sorted({f"{detail.task.app}/{step.agent}" for step in running}))
        return _verdict(
            "unclaimed", f"{join_names(names)} {_is(len(names))} waiting for a free slot of {agents}"
        )
    ahead = detail.count("waiting")
    text = f"{quantity(ahead, 'step')} to come." if ahead else "Then the task ends."
    others = detail.count("running") - len(running)
    return _verdict("processing", f"{join_names(names, more=others)} {_is(len(names))} running", text)


def _losing(actions: Sequence[StepView]) -> TaskVerdict | None:
    losers = [step.name for step in actions if step.loser and step.state == "undoing"]
    return _verdict("processing", f"Lost branches are being undone: {join_names(losers)}") if losers else None


def _in_doubt(detail: TaskDetail, step: StepView, course: Course) -> TaskVerdict:
    policy, ring = _policy(step), None
    steps: list[str] = []
    if step.doing == "probe":
        steps = ["its probe asks the service now"]
    elif step.waiting and step.due is not None:
        steps = [AGAIN]
        wait = policy.extended if step.failures > policy.threshold else policy.wait
        ring = _countdown(step, f"to attempt {step.attempt + 1}", wait)
    title = f"{step.name} is in doubt: it gave no certain answer{course.silence(step.idx, step.round)}"
    steps += _after(detail, step, policy)
    return _verdict("in doubt", title, step.error, fill=step.attempt, steps=steps, countdown=ring)


def _after(detail: TaskDetail, step: StepView, policy: Policy) -> list[str]:
    """Return what follows if the step stays in doubt: by the rule that decides it."""
    if policy.never:
        return ["it must not be repeated: then makegood holds the task for you"]
    waits: list[float] = []
    while len(waits) <= MOST_TRIES:
        choice = verdict(step.failures + 1 + len(waits), policy.threshold, policy.then)
        if choice not in ("retry", "extended"):
            break
        waits.append(policy.wait if choice == "retry" else policy.extended)
    kinds = dict.fromkeys(map(brief, waits))
    tries = (
        [f"{quantity(len(waits), 'more try', 'more tries')}, after {' and '.join(kinds)}"] if waits else []
    )
    if policy.then == "hold":
        return [*tries, "then makegood holds the task for you"]
    try:
        return [*tries, f"then undo: {_effects(undo_order(detail))}"]
    except StoreError:
        return tries


def _undoing(detail: TaskDetail, course: Course) -> TaskVerdict:
    running = [step for step in detail.steps if step.state == "undoing"]
    failures = [step for step in detail.steps if step.state == "undo_failed"]
    if failures:
        title = f"The undo of {join_names([s.name for s in failures])} failed; the others continue"
        return _verdict("undo stuck", title, failures[0].error)
    if step := next((step for step in running if step.failures), None):
        policy, ring = _policy(step), None
        if step.waiting and step.due is not None:
            wait = policy.undo_extended if step.failures > policy.undo_threshold else policy.undo_wait
            ring = _countdown(step, f"to attempt {step.attempt + 1}", wait)
        title, steps = f"The undo of {step.name} has not succeeded yet", [AGAIN] if ring else []
        return _verdict("undo failing", title, step.error, fill=step.attempt, steps=steps, countdown=ring)
    waiting = [step.name for step in detail.steps if step.state in ("running", "in_doubt")]
    title = "Undoing"
    if running:
        others = max(0, detail.count("undoing") - len(running))
        title = f"Undoing: {join_names([s.name for s in running], more=others)}"
    elif waiting:
        title = f"Undoing, once {join_names(waiting)} {_is(len(waiting))} answered"
    ahead = ""
    if detail.tally is not None:
        ahead = f"To come: at most {quantity(detail.count('done', 'in_doubt'), 'step')}."
    elif left := [preview for preview in undo_order(detail) if preview.step.state != "undoing"]:
        ahead = f"To come: {_effects(left)}."
    cause = cause_sentence(detail.task.cause, course.cause)
    return _verdict("undoing", title, " ".join(filter(None, (cause, ahead))))


_AT = {
    "pending": _pending, "sleeping": _sleeping, "queued": _queued_verdict, "processing": _processing, "processed": _processed_verdict, "undoing": _undoing, "undone": _undone_verdict,
    "error": _error,
}  # fmt: skip


# -- words ---------------------------------------------------------------------------------------------------


def _effects(previews: Sequence[Preview]) -> str:
    """Say how much an undo takes back: "27 effects in 5 turns"."""
    turns = [preview.turn for preview in previews if not preview.stays]
    if not turns:
        return "no effect"
    return f"{quantity(len(turns), 'effect')} in {quantity(len(set(turns)), 'turn')}"


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def _policy(step: StepView) -> Policy:
    policy = step.plan.policy if step.plan is not None else None
    return policy if policy is not None else Policy(within=60.0)


def _countdown(step: StepView, words: str, wait: float) -> Countdown:
    left = max(0.0, step.due or 0.0)
    return Countdown(left, round(100 * min(1.0, left / wait), 1) if wait else 0.0, words)
