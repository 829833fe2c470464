"""The verdict on a task: one sentence that answers its page, and what comes next."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from makegood.base.counts import counted
from makegood.base.durations import brief
from makegood.client.remedies import trouble
from makegood.client.undo_preview import Preview, listed, needs_settling
from makegood.console.attempts import Course
from makegood.errors import StoreError
from makegood.model.policy import Policy, verdict
from makegood.store.views import StepView, TaskDetail

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


def verdict_of(found: TaskDetail, course: Course, *, attended: bool = True) -> TaskVerdict:
    """Return the verdict. ``attended``: whether a process is alive that advances tasks."""
    if found.unreadable:
        return TaskVerdict(
            tone="need", icon="error", title="Rows of this task cannot be read", more="; ".join(found.unreadable),
            badge="error", said=found.task.state,
        )  # fmt: skip
    made = _AT[found.task.state](found, course)
    if not attended and found.task.state in ("pending", "processing", "undoing"):
        made.tone, made.icon = "need", "error"
        made.title, made.more = "No Scheduler is running: nothing continues until one does", made.title
        made.next, made.countdown = [], None
    for one in found.asked:
        made.more = f"{made.more} {one.act.who or 'An operator'} asked for {one.kind}; no Scheduler has decided it yet.".strip()
    return made


# -- at rest -------------------------------------------------------------------------------------------------


def _processed(found: TaskDetail, course: Course) -> TaskVerdict:
    done = sum(step.kind == "action" and step.state == "done" for step in found.steps)
    took = _length(found, course)
    return TaskVerdict(
        tone="ok", icon="done", title=f"Processed: {_steps(done)} done in {took}", more="Nothing more will happen.",
        badge="processed", said="processed",
    )  # fmt: skip


def _undone(found: TaskDetail, course: Course) -> TaskVerdict:
    stands = [step for step in found.steps if step.stands]
    final = [step.name for step in stands if step.no_return]
    harmless = [step.name for step in stands if not step.no_return]
    if final:
        title = f"Undone, but {names(final)} cannot be undone and {_is(final)} still in place"
    elif harmless:
        title = f"Undone, clean: only {names(harmless)} {_is(harmless)} still in place, and harmless"
    else:
        title = "Undone, clean: nothing is in place"
    back = [step for step in found.steps if step.state == "undone"]
    undos = [
        a
        for a in course.attempts
        if a.doing == "undo" and a.ended is not None and a.submission == found.task.submission
    ]
    parts = [_sentence(found.task.cause)]
    if back and undos:
        span = max(a.ended or a.asked for a in undos) - min(a.asked for a in undos)
        effects = counted(len(back), "effect")
        parts.append(f"makegood undid {effects} in {brief(max(0.0, span))}, in reverse order.")
    parts.append("Nothing more will happen, and nobody is needed.")
    said = "undone" if final else "undone, clean"
    return TaskVerdict(
        tone="undo", icon="undone", title=title, more=" ".join(filter(None, parts)), badge="undone", said=said
    )


def _stuck(step: StepView, course: Course) -> str:
    """Say why an undo failed: the service refused it, or did not answer until makegood gave up."""
    tried = [
        a for a in course.of(step.idx) if a.doing == "undo" and a.ended is not None and a.round == step.round
    ]
    if tried and tried[-1].why in ("permanent", "refused"):
        return f"The service refused for good: “{step.error}”."
    times = f" after {counted(len(tried), 'attempt')}" if tried else ""
    return f"makegood gave up{times}; the last one ended with “{step.error}”."


def _error(found: TaskDetail, course: Course) -> TaskVerdict:
    stuck = [step for step in found.steps if step.state == "undo_failed"]
    settle = [name for name in needs_settling(found) if name not in {step.name for step in stuck}]
    if found.task.goal == "undo":
        behind = [
            preview.step.name
            for preview in listed(found)
            if preview.step not in stuck
            and preview.step.name not in settle
            and "stays" not in preview.happens
        ]
        what = (
            f"the undo of {names([s.name for s in stuck])} failed"
            if stuck
            else f"nobody can tell whether {names(settle)} happened"
        )
        waits = f", and {names(behind)} {'wait' if len(behind) > 1 else 'waits'} behind it" if behind else ""
        reasons = [_stuck(step, course) for step in stuck if step.error]
        more = " ".join((*reasons[:1], "Nothing moves until you act."))
        return TaskVerdict(
            tone="need", icon="error", title=f"Undo incomplete: {what}{waits}", more=more, badge="error",
            said="error · undo incomplete",
        )  # fmt: skip
    cause = found.task.cause or next(iter(trouble(found)), "") or "no cause recorded"
    passed = [step.name for step in found.steps if step.no_return and step.state in ("done", "in_doubt")]
    why = (
        f"{names(passed)} cannot be undone, so makegood waits for you."
        if passed
        else "makegood waits for you."
    )
    return TaskVerdict(
        tone="need",
        icon="error",
        title=f"Held: {cause}",
        more=f"{why} Nothing moves until you act.",
        badge="error",
        said="error · held",
    )


# -- under way -----------------------------------------------------------------------------------------------


def _pending(found: TaskDetail, _course: Course) -> TaskVerdict:
    goal = ", and will undo it" if found.task.goal == "undo" else ""
    return TaskVerdict(
        tone="",
        icon="pending",
        title=f"Pending: the next free Scheduler claims it{goal}",
        badge="pending",
        said="pending",
    )


def _processing(found: TaskDetail, course: Course) -> TaskVerdict:
    actions = [step for step in found.steps if step.kind == "action"]
    doubts = [step for step in actions if step.state == "in_doubt"]
    running = [step for step in actions if step.state == "running"]
    resting = [step for step in actions if step.waiting and step.state == "ready"]
    if found.task.goal != "forward":
        what = names([s.name for s in running + doubts]) or "its steps"
        return TaskVerdict(
            tone="doubt",
            icon="waiting",
            title=f"Held: makegood waits for what is in flight: {what}",
            badge="failing",
            said="processing · held",
        )
    if doubts:
        return _in_doubt(found, doubts[0], course)
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
        agents = names(sorted({f"{found.task.app}/{step.agent}" for step in untaken}))
        return TaskVerdict(
            tone="run", icon="waiting", title=f"{names([s.name for s in untaken])} {_is(untaken)} waiting for a free slot of {agents}",
            badge="waiting", said="waiting for an agent",
        )  # fmt: skip
    if not running:
        return TaskVerdict(tone="run", icon="run", title="Processing", badge="processing", said="processing")
    ahead = sum(step.state == "waiting" for step in actions)
    more = f"{_steps(ahead)} to come." if ahead else "Then the task ends."
    return TaskVerdict(
        tone="run",
        icon="run",
        title=f"{names([s.name for s in running])} {_is(running)} running",
        more=more,
        badge="processing",
        said="processing",
    )


def _in_doubt(found: TaskDetail, step: StepView, course: Course) -> TaskVerdict:
    policy = _policy(step)
    silent = sum(
        a.doing == "do" and a.end == "no answer" and a.round == step.round for a in course.of(step.idx)
    )
    times = {0: "", 1: "", 2: ", twice"}.get(silent, f", {silent} times")
    title = f"{step.name} is in doubt: it gave no certain answer{times}"
    made = TaskVerdict(
        tone="doubt",
        icon="doubt",
        title=title,
        more=step.error or "",
        badge="failing",
        said=f"processing · attempt {step.attempt} · failing",
    )
    if step.doing == "probe":
        made.next = ["its probe asks the service now"]
    elif step.waiting and step.due is not None:
        made.next = ["{} asked again, under the same key"]
        wait = policy.extended if step.failures > policy.threshold else policy.wait
        made.countdown = _ring(step, f"to attempt {step.attempt + 1}", wait)
    made.next += _after(found, step, policy)
    return made


def _after(found: TaskDetail, step: StepView, policy: Policy) -> list[str]:
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
        previews = listed(found)
    except StoreError:
        return tries
    return [*tries, f"then undo: {effects(previews)}"]


def _undoing(found: TaskDetail, _course: Course) -> TaskVerdict:
    running = [step for step in found.steps if step.state == "undoing"]
    stuck = [step for step in found.steps if step.state == "undo_failed"]
    failing = [step for step in running if step.failures]
    cause = _sentence(found.task.cause)
    if stuck:
        step = stuck[0]
        return TaskVerdict(
            tone="need", icon="error", title=f"The undo of {names([s.name for s in stuck])} failed; the others continue",
            more=step.error or "", badge="undoing", said="undoing · one is stuck",
        )  # fmt: skip
    if failing:
        step = failing[0]
        policy = _policy(step)
        made = TaskVerdict(
            tone="doubt", icon="undoing", title=f"The undo of {step.name} has not succeeded yet", more=step.error or "",
            badge="failing", said=f"undoing · attempt {step.attempt} · failing",
        )  # fmt: skip
        if step.waiting and step.due is not None:
            wait = policy.undo_extended if step.failures > policy.undo_threshold else policy.undo_wait
            made.next, made.countdown = (
                ["{} asked again, under the same key"],
                _ring(step, f"to attempt {step.attempt + 1}", wait),
            )
        return made
    waiting = [step.name for step in found.steps if step.state in ("running", "in_doubt")]
    title = f"Undoing: {names([s.name for s in running])}" if running else "Undoing"
    if not running and waiting:
        title = f"Undoing, once {names(waiting)} {'is' if len(waiting) == 1 else 'are'} answered"
    left = [preview for preview in listed(found) if preview.step.state != "undoing"]
    more = " ".join(filter(None, (cause, f"To come: {effects(left)}." if left else "")))
    return TaskVerdict(tone="undo", icon="undoing", title=title, more=more, badge="undoing", said="undoing")


_AT = {
    "pending": _pending, "processing": _processing, "processed": _processed, "undoing": _undoing, "undone": _undone,
    "error": _error,
}  # fmt: skip


# -- words ---------------------------------------------------------------------------------------------------


def effects(previews: Sequence[Preview]) -> str:
    """Say how much an undo takes back: "27 effects in 5 turns"."""
    back = [preview for preview in previews if "stays" not in preview.happens]
    turns = len({preview.turn for preview in back})
    if not back:
        return "no effect"
    return f"{counted(len(back), 'effect')} in {counted(turns, 'turn')}"


def names(given: Sequence[str], most: int = MOST_NAMES) -> str:
    """Join names.

    >>> names(["book", "pack"]), names(["a", "b", "c", "d", "e"])
    ('book and pack', 'a, b, c and 2 more')
    """
    some, more = list(given[:most]), len(given) - most
    if more > 0:
        return f"{', '.join(some)} and {more:,} more"
    return " and ".join(filter(None, (", ".join(some[:-1]), some[-1] if some else "")))


def _is(given: Sequence[object]) -> str:
    return "is" if len(given) == 1 else "are"


def _steps(count: int) -> str:
    return counted(count, "step")


def _sentence(text: str) -> str:
    return (
        f"{text[:1].upper() + text[1:] if not _named(text) else text}{'' if text.endswith('.') else '.'}"
        if text
        else ""
    )


def _named(text: str) -> bool:
    """Whether a cause begins with a step's name, which keeps its letters."""
    return ":" in text.partition(" ")[0]


def _policy(step: StepView) -> Policy:
    policy = step.plan.policy if step.plan is not None else None
    return policy if policy is not None else Policy(within=60.0)


def _ring(step: StepView, words: str, wait: float) -> Countdown:
    left = max(0.0, step.due or 0.0)
    return Countdown(seconds=left, share=round(100 * min(1.0, left / wait), 1) if wait else 0.0, words=words)


def _length(found: TaskDetail, course: Course) -> str:
    begun = course.began.get(found.task.submission, found.task.created)
    ended = found.task.ended if found.task.ended is not None else begun
    return brief(max(0.0, ended - begun))
