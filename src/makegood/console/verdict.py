"""The verdict on a task: one sentence that answers its page, and what comes next."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from makegood.base.counts import counted
from makegood.base.durations import brief
from makegood.console.attempts import Course
from makegood.errors import StoreError
from makegood.model.policy import Policy, verdict
from makegood.store.views import StepView, TaskDetail
from makegood.story.trouble import cause_sentence, trouble
from makegood.story.undo_preview import Preview, needs_settling, undo_order

MOST_NAMES = 3


@dataclass(slots=True, kw_only=True)
class Countdown:
    """The ring: seconds until the next planned act."""

    seconds: float
    share: float
    """Of the wait, what is left, 0 to 100."""
    words: str


@dataclass(slots=True, kw_only=True)
class TaskVerdict:
    """What is said first."""

    tone: str
    """"", ok, run, undo, doubt, need."""
    icon: str
    title: str
    more: str = ""
    next: list[str] = field(default_factory=list)
    """What comes next, in order; ``{}`` in the first stands for the countdown."""
    countdown: Countdown | None = None
    badge: str = ""
    """The look of the badge in the head."""
    said: str = ""
    """The words of the badge."""


def verdict_of(detail: TaskDetail, course: Course, *, has_scheduler: bool = True) -> TaskVerdict:
    """Return the verdict. ``has_scheduler``: whether a process is alive that advances tasks."""
    if detail.unreadable:
        return TaskVerdict(
            tone="need", icon="error", title="Rows of this task cannot be read", more="; ".join(detail.unreadable),
            badge="error", said=detail.task.state,
        )  # fmt: skip
    verdict = _AT[detail.task.state](detail, course)
    if not has_scheduler and detail.task.state in ("pending", "processing", "undoing"):
        verdict.tone, verdict.icon = "need", "error"
        verdict.more = verdict.title
        verdict.title = "No Scheduler is running: nothing continues until one does"
        verdict.next, verdict.countdown = [], None
    for request in detail.asked:
        verdict.more = f"{verdict.more} {request.act.who or 'An operator'} asked for {request.kind}; no Scheduler has decided it yet.".strip()
    return verdict


# -- at rest -------------------------------------------------------------------------------------------------


def _processed(detail: TaskDetail, course: Course) -> TaskVerdict:
    count = detail.count("done")
    took = _length(detail, course)
    return TaskVerdict(
        tone="ok", icon="done", title=f"Processed: {_steps(count)} done in {took}", more="Nothing more will happen.",
        badge="processed", said="processed",
    )  # fmt: skip


def _undone(detail: TaskDetail, course: Course) -> TaskVerdict:
    stands = [step for step in detail.steps if step.stands]
    final = [step.name for step in stands if step.no_return]
    harmless = [step.name for step in stands if not step.no_return]
    if detail.tally is not None and (count := detail.count("kept")):
        final = final or [""]
        title = f"Undone; {counted(count, 'effect')} {'is' if count == 1 else 'are'} still in place, harmless or without a way back"
    elif final:
        title = f"Undone, but {names(final)} cannot be undone and {_is(final)} still in place"
    elif harmless:
        title = f"Undone, clean: only {names(harmless)} {_is(harmless)} still in place, and harmless"
    else:
        title = "Undone, clean: nothing is in place"
    back = [step for step in detail.steps if step.state == "undone"]
    undos = [
        a
        for a in course.attempts
        if a.doing == "undo" and a.ended is not None and a.submission == detail.task.submission
    ]
    parts = [cause_sentence(detail.task.cause, course.cause)]
    if back and undos:
        span = max(a.ended or a.asked for a in undos) - min(a.asked for a in undos)
        effects = counted(detail.count("undone"), "effect")
        parts.append(f"makegood undid {effects} in {brief(max(0.0, span))}, in reverse order.")
    parts.append("Nothing more will happen, and nobody is needed.")
    label = "undone" if final else "undone, clean"
    return TaskVerdict(
        tone="undo",
        icon="undone",
        title=title,
        more=" ".join(filter(None, parts)),
        badge="undone",
        said=label,
    )


def _stuck(step: StepView, course: Course) -> str:
    """Say why an undo failed: the service refused it, or did not answer until makegood gave up."""
    attempts = [
        a for a in course.of(step.idx) if a.doing == "undo" and a.ended is not None and a.round == step.round
    ]
    if attempts and attempts[-1].kind in ("permanent", "refused"):
        return f"The service refused for good: “{step.error}”."
    times = f" after {counted(len(attempts), 'attempt')}" if attempts else ""
    return f"makegood gave up{times}; the last one ended with “{step.error}”."


def _error(detail: TaskDetail, course: Course) -> TaskVerdict:
    failures = [step for step in detail.steps if step.state == "undo_failed"]
    others = max(0, detail.count("undo_failed") - len(failures))
    settle = [name for name in needs_settling(detail) if name not in {step.name for step in failures}]
    if detail.task.goal == "undo":
        behind = [
            preview.step.name
            for preview in (undo_order(detail) if detail.tally is None else ())
            if preview.step not in failures and preview.step.name not in settle and not preview.stays
        ]
        subject = (
            f"the undo of {names([s.name for s in failures], more=others)} failed"
            if failures
            else f"nobody can tell whether {names(settle)} happened"
        )
        waits = f", and {names(behind)} {'wait' if len(behind) > 1 else 'waits'} behind it" if behind else ""
        reasons = [_stuck(step, course) for step in failures if step.error]
        text = " ".join((*reasons[:1], "Nothing moves until you act."))
        return TaskVerdict(
            tone="need", icon="error", title=f"Undo incomplete: {subject}{waits}", more=text, badge="error",
            said="error · undo incomplete",
        )  # fmt: skip
    cause = detail.task.cause or next(iter(trouble(detail)), "") or "no cause recorded"
    finals = [step.name for step in detail.steps if step.no_return and step.state in ("done", "in_doubt")]
    reason = (
        f"{names(finals)} cannot be undone, so makegood waits for you."
        if finals
        else "makegood waits for you."
    )
    return TaskVerdict(
        tone="need",
        icon="error",
        title=f"Held: {cause}",
        more=f"{reason} Nothing moves until you act.",
        badge="error",
        said="error · held",
    )


# -- under way -----------------------------------------------------------------------------------------------


def _pending(detail: TaskDetail, _course: Course) -> TaskVerdict:
    goal = ", and will undo it" if detail.task.goal == "undo" else ""
    return TaskVerdict(
        tone="",
        icon="pending",
        title=f"Pending: the next free Scheduler claims it{goal}",
        badge="pending",
        said="pending",
    )


def _processing(detail: TaskDetail, course: Course) -> TaskVerdict:
    actions = [step for step in detail.steps if step.kind == "action"]
    doubts = [step for step in actions if step.state == "in_doubt"]
    running = [step for step in actions if step.state == "running"]
    resting = [step for step in actions if step.waiting and step.state == "ready"]
    if detail.task.goal != "forward":
        subject = names([s.name for s in running + doubts]) or "its steps"
        return TaskVerdict(
            tone="doubt",
            icon="waiting",
            title=f"Held: makegood waits for what is in flight: {subject}",
            badge="failing",
            said="processing · held",
        )
    if doubts:
        return _in_doubt(detail, doubts[0], course)
    failing = [step for step in running + resting if step.failures]
    if failing:
        step = failing[0]
        return TaskVerdict(
            tone="doubt", icon="run", title=f"{step.name} has not succeeded yet: attempt {step.attempt}",
            more=step.error or "", badge="failing", said=f"processing · attempt {step.attempt} · failing",
        )  # fmt: skip
    if resting and not running:
        step = min(resting, key=lambda s: s.due or 0.0)
        return TaskVerdict(
            tone="run", icon="waiting", title=f"Waiting: {step.name} is asked again later", more=step.error or "", badge="waiting", said="waiting",
            countdown=_ring(step, "to the next attempt", step.due or 0.0),
        )  # fmt: skip
    untaken = [step for step in running if step.taken_by is None and step.doing is not None]
    if running and len(untaken) == len(running):
        agents = names(sorted({f"{detail.task.app}/{step.agent}" for step in untaken}))
        return TaskVerdict(
            tone="run", icon="waiting", title=f"{names([s.name for s in untaken])} {_is(untaken)} waiting for a free slot of {agents}",
            badge="waiting", said="waiting for an agent",
        )  # fmt: skip
    if not running:
        return TaskVerdict(tone="run", icon="run", title="Processing", badge="processing", said="processing")
    ahead = detail.count("waiting")
    text = f"{_steps(ahead)} to come." if ahead else "Then the task ends."
    return TaskVerdict(
        tone="run",
        icon="run",
        title=f"{names([s.name for s in running], more=detail.count('running') - len(running))} {_is(running)} running",
        more=text,
        badge="processing",
        said="processing",
    )


def _in_doubt(detail: TaskDetail, step: StepView, course: Course) -> TaskVerdict:
    policy = _policy(step)
    silent = sum(
        a.doing == "do" and a.end == "no answer" and a.round == step.round for a in course.of(step.idx)
    )
    times = {0: "", 1: "", 2: ", twice"}.get(silent, f", {silent} times")
    title = f"{step.name} is in doubt: it gave no certain answer{times}"
    verdict = TaskVerdict(
        tone="doubt",
        icon="doubt",
        title=title,
        more=step.error or "",
        badge="failing",
        said=f"processing · attempt {step.attempt} · failing",
    )
    if step.doing == "probe":
        verdict.next = ["its probe asks the service now"]
    elif step.waiting and step.due is not None:
        verdict.next = ["{} asked again, under the same key"]
        wait = policy.extended if step.failures > policy.threshold else policy.wait
        verdict.countdown = _ring(step, f"to attempt {step.attempt + 1}", wait)
    verdict.next += _after(detail, step, policy)
    return verdict


def _after(detail: TaskDetail, step: StepView, policy: Policy) -> list[str]:
    """Return what follows if the step stays in doubt: by the rule that decides it."""
    if policy.never:
        return ["it must not be repeated: then makegood holds the task for you"]
    left = 0
    waits: list[float] = []
    while (choice := verdict(step.failures + 1 + left, policy.threshold, policy.then)) in (
        "retry",
        "extended",
    ):
        waits.append(policy.wait if choice == "retry" else policy.extended)
        left += 1
        if left > 1000:
            break
    kinds = list(dict.fromkeys(brief(wait) for wait in waits))
    tries = [f"{left} more {'try' if left == 1 else 'tries'}, after {' and '.join(kinds)}"] if left else []
    if policy.then == "hold":
        return [*tries, "then makegood holds the task for you"]
    try:
        previews = undo_order(detail)
    except StoreError:
        return tries
    return [*tries, f"then undo: {effects(previews)}"]


def _undoing(detail: TaskDetail, course: Course) -> TaskVerdict:
    running = [step for step in detail.steps if step.state == "undoing"]
    failures = [step for step in detail.steps if step.state == "undo_failed"]
    failing = [step for step in running if step.failures]
    cause = cause_sentence(detail.task.cause, course.cause)
    if failures:
        step = failures[0]
        return TaskVerdict(
            tone="need", icon="error", title=f"The undo of {names([s.name for s in failures])} failed; the others continue",
            more=step.error or "", badge="undoing", said="undoing · one is stuck",
        )  # fmt: skip
    if failing:
        step = failing[0]
        policy = _policy(step)
        verdict = TaskVerdict(
            tone="doubt", icon="undoing", title=f"The undo of {step.name} has not succeeded yet", more=step.error or "",
            badge="failing", said=f"undoing · attempt {step.attempt} · failing",
        )  # fmt: skip
        if step.waiting and step.due is not None:
            wait = policy.undo_extended if step.failures > policy.undo_threshold else policy.undo_wait
            verdict.next, verdict.countdown = (
                ["{} asked again, under the same key"],
                _ring(step, f"to attempt {step.attempt + 1}", wait),
            )
        return verdict
    waiting = [step.name for step in detail.steps if step.state in ("running", "in_doubt")]
    others = max(0, detail.count("undoing") - len(running))
    title = f"Undoing: {names([s.name for s in running], more=others)}" if running else "Undoing"
    if not running and waiting:
        title = f"Undoing, once {names(waiting)} {'is' if len(waiting) == 1 else 'are'} answered"
    if detail.tally is not None:
        ahead = counted(detail.count("done", "in_doubt"), "step")
        text = " ".join(filter(None, (cause, f"To come: at most {ahead}.")))
        return TaskVerdict(
            tone="undo", icon="undoing", title=title, more=text, badge="undoing", said="undoing"
        )
    left = [preview for preview in undo_order(detail) if preview.step.state != "undoing"]
    text = " ".join(filter(None, (cause, f"To come: {effects(left)}." if left else "")))
    return TaskVerdict(tone="undo", icon="undoing", title=title, more=text, badge="undoing", said="undoing")


_AT = {
    "pending": _pending, "processing": _processing, "processed": _processed, "undoing": _undoing, "undone": _undone,
    "error": _error,
}  # fmt: skip


# -- words ---------------------------------------------------------------------------------------------------


def effects(previews: Sequence[Preview]) -> str:
    """Say how much an undo takes back: "27 effects in 5 turns"."""
    back = [preview for preview in previews if not preview.stays]
    turns = len({preview.turn for preview in back})
    if not back:
        return "no effect"
    return f"{counted(len(back), 'effect')} in {counted(turns, 'turn')}"


def names(items: Sequence[str], most: int = MOST_NAMES, *, more: int = 0) -> str:
    """Join names; ``more``: others that are only counted.

    >>> names(["book", "pack"]), names(["a", "b", "c", "d", "e"])
    ('book and pack', 'a, b, c and 2 more')
    """
    some, more = list(items[:most]), max(0, len(items) - most) + more
    if more > 0:
        return f"{', '.join(some)} and {more:,} more"
    return " and ".join(filter(None, (", ".join(some[:-1]), some[-1] if some else "")))


def _is(items: Sequence[object]) -> str:
    return "is" if len(items) == 1 else "are"


def _steps(count: int) -> str:
    return counted(count, "step")


def _policy(step: StepView) -> Policy:
    policy = step.plan.policy if step.plan is not None else None
    return policy if policy is not None else Policy(within=60.0)


def _ring(step: StepView, words: str, wait: float) -> Countdown:
    left = max(0.0, step.due or 0.0)
    return Countdown(seconds=left, share=round(100 * min(1.0, left / wait), 1) if wait else 0.0, words=words)


def _length(detail: TaskDetail, course: Course) -> str:
    start = course.began.get(detail.task.submission, detail.task.created)
    end = detail.task.ended if detail.task.ended is not None else start
    return brief(max(0.0, end - start))
