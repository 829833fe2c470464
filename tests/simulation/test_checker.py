"""Each invariant of the checker: a history that keeps it passes, a falsified one is caught under that invariant's name."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makegood.model.plan import StepPlan, Template
from makegood.store.views import StepView, TaskDetail, TaskView
from makegood.supervisor.supervisor import LEASE
from makegood.testing.checker import Final
from makegood.testing.history import Event, History
from proofs.storms.rules import RULES, check
from proofs.storms.zone_laws import ZONE
from tests.simulation.handmade_histories import (
    KEEPS,
    PLANS,
    STEPS,
    WITHIN,
    Pick,
    Story,
    changed,
    dropped,
    final,
    find,
    good,
    moved_behind,
    moving,
    picks,
    repeated,
)

Falsify = Callable[[History], History]


KEY, LATER = (f"tick@1970-01-01T00:{time}[{ZONE}]" for time in ("00:10", "01:20"))
"""The keys of two moments."""


def firing(calendar: float) -> Pick:
    """Return what picks the operation on a schedule at a time."""
    return picks("schedule", calendar=calendar)


def fired_for_a_pause(history: History) -> History:
    """A moment within a pause is fired once the pause is over."""
    history = changed(history, firing(57.0), pause=(57.0, 65.5))
    return changed(history, firing(66.0), tasks=[(166, LATER)])


def running_on(history: History) -> History:
    """An action goes on although it was cancelled."""
    at = find(history, picks("hears"))
    event = replace(history.events[at], kind="runs on")
    return History(events=[*history.events[: at + 1], event, *history.events[at + 1 :]])


def judged_again(history: History) -> History:
    """The same silence is counted a second time."""
    return repeated(history, picks("judged", 2), failures=2)


def claimed_by_two(history: History) -> History:
    """A second Scheduler claims under the epoch that was given already."""
    at = find(history, picks("claimed", 1))
    first = history.events[at]
    return History(events=[*history.events[: at + 1], replace(first, node="s2"), *history.events[at + 1 :]])


def seized(history: History) -> History:
    """Another Scheduler claims, under a new epoch, what is held and alive."""
    return repeated(history, picks("claimed", 1), after=picks("store"), epoch=2)


def decided_by_another(history: History) -> History:
    """Who does not hold the task decides, and commits."""
    at = find(history, moving(1, 1, "running", "done"))
    events = list(history.events)
    for n in (at - 1, at, at + 1):
        events[n] = replace(events[n], node="s2")
    return History(events=events)


def out_of_order(history: History) -> History:
    """The task that begins first was submitted last."""
    for state in ("waiting", "held"):
        history = changed(history, picks("lane", 7, state=state), seq=9)
    return history


def later(history: History, pick: Pick) -> History:
    """A commit, and all that follows, is a minute later, and there are no faults."""
    at = find(history, pick)
    at = next(n for n in range(at, 0, -1) if history.events[n - 1].at < history.events[at].at)
    healed = replace(history.events[0], kind="healed", task=0, fields={})
    late = [replace(event, at=event.at + 60.0) for event in history.events[at:]]
    return History(events=[healed, *history.events[:at], *late])


def read_late(history: History) -> History:
    """A signal is kept a minute after it was sent, while there are no faults."""
    at, end = find(history, picks("signalled", id="c")), find(history, picks("kept", id="c"))
    healed = replace(history.events[at], kind="healed", task=0, fields={})
    late = [replace(event, at=event.at + 60.0) for event in history.events[end:]]
    return History(events=[healed, *history.events[:end], *late])


def lingering(history: History) -> History:
    """A Scheduler keeps a task that only waits."""
    at = find(history, picks("suspended"))
    event = replace(history.events[at], kind="lingers", fields={"wait": 60.0, "linger": 10.0})
    return History(events=[*history.events[:at], event, *history.events[at + 1 :]])


def two_canaries(history: History) -> History:
    """The circuit stays half-open, its canary is not answered, and another call begins."""
    history = dropped(history, picks("reply", 5, attempt=2))
    at = find(history, picks("circuit", state="half-open"))
    return History(events=[e for n, e in enumerate(history.events) if n <= at or e.kind != "circuit"])


def given_up_for_no_reason(history: History) -> History:
    """A step is given up when its key is too old, and its alert has another reason."""
    at = find(history, moving(5, 0, "running", "in_doubt"))
    now = history.events[at].at + KEEPS + 1
    alert = Event(
        now, "alert", "s1", 5, {"alert": "step_gave_up", "step": "reserve", "text": "reserve: no answer"}
    )
    return History(events=[*history.events[: at + 1], alert, *history.events[at + 1 :]])


def excused_and_counted(history: History) -> History:
    """The failure of what was under way when the circuit opened counts all the same."""
    at = find(history, picks("accepted", 5, reply="gave_up"))
    failure = replace(history.events[at], kind="counted", fields={"idx": 0, "failures": 1})
    return History(events=[*history.events[: at + 1], failure, *history.events[at + 1 :]])


def taken_by_two(history: History) -> History:
    return repeated(history, picks("taken", 1), by="a2")


def without_undo_of_reserve(history: History) -> History:
    """The task is undone although a done step stands."""
    events = [e for e in history.events if not (e.task == 2 and e.at > 3.35)]
    story = Story()
    story.now = 3.5
    story.commit(
        2, (1, "undoing", "undone"), ("task", "undoing", "undone"), acceptance=(1, "undo", 2, "done"), end="undone"
    )  # fmt: skip
    ours = story.history.events
    later = [e for e in history.events if e.at > 3.95]
    return History(events=[*(e for e in events if e not in later), *ours, *later])


def undo_in_wrong_order(history: History) -> History:
    """The first step's undo is asked while the second is done."""
    story = Story()
    story.lead("v1", 1)
    story.processed(1)
    story.commit(
        1, ("task", "processed", "undoing"), (0, "done", "undoing"), claim=2, act="undo", requests=[(0, "undo", 2)]
    )  # fmt: skip
    return story.history


def undo_without_decision(history: History) -> History:
    """An undo is asked of a task that goes forward."""
    return repeated(
        history, picks("sent", 1, idx=0), doing="undo", attempt=2, key="t1/reserve/1/undo", later=0.02
    )


def undo_of_what_never_started(history: History) -> History:
    story = Story()
    story.submit(1)
    story.commit(1, ("task", "pending", "undoing"), claim=1, act="cancel", requests=[(1, "undo", 1)])
    return story.history


def undo_in_flight(history: History) -> History:
    """The undo is asked although the silent attempt was not judged."""
    without = dropped(history, picks("judged", 2))
    return dropped(dropped(without, picks("late", 2)), picks("refused", 2))


def undo_before_deadline(history: History) -> History:
    """The attempt was judged early, because its process seemed dead, and the undo does not wait for its deadline."""
    longer = changed(history, picks("taken", 2, idx=1, attempt=1), within=60.0)
    return changed(longer, picks("judged", 2), dead=True)


def given_up_in_silence(history: History) -> History:
    """The undo leaves a step in doubt although nothing is in its way, and no alert says why."""
    story = Story()
    story.begin(1)
    story.ask(1, 1, 1)
    story.commit(1, (1, "running", "in_doubt"))
    story.commit(
        1, ("task", "processing", "undoing"), ("task", "undoing", "error"), act="cancel", alert="undo_incomplete",
        end="error", standing=STEPS,
    )  # fmt: skip
    return story.history


def started_too_soon(history: History) -> History:
    """The second step is asked for in the commit that starts the first."""
    at = find(history, picks("sent", 1, idx=0))
    first = history.events[at]
    second = replace(first, fields={**first.fields, "idx": 1, "key": "t1/charge/1/do"})
    events = [e for e in history.events if not picks("sent", 1, idx=1)(e)]
    return History(events=[*events[: at + 1], second, *events[at + 1 :]])


def done_without_reply(history: History) -> History:
    """The late reply of a judged attempt makes its step done after all."""
    at = find(history, picks("refused", 2))
    move = Event(2.85, "moved", "s1", 2, {"moves": [(1, "in_doubt", "done", 1, 1)], "cause": "", "note": ""})
    return changed(
        History(events=[*history.events[: at + 1], move, *history.events[at + 1 :]]),
        moving(2, 1, "in_doubt", "undoing"),
        moves=[("task", "processing", "undoing"), (1, "done", "undoing", 2, 1)],
    )


def ended_and_moved_on(history: History) -> History:
    """A processed task is undone, and nobody asked for it."""
    at = find(history, picks("ended", 1)) + 1
    story = Story()
    story.now = 1.45
    story.commit(1, ("task", "processed", "undoing"), claim=2)
    story.commit(1, ("task", "undoing", "processed"))
    return History(events=[*history.events[: at + 1], *story.history.events, *history.events[at + 1 :]])


def step_moved_after_the_end(history: History) -> History:
    at = find(history, picks("ended", 1)) + 1
    story = Story()
    story.now = 1.45
    story.commit(1, (1, "done", "kept"), claim=2)
    return History(events=[*history.events[: at + 1], *story.history.events, *history.events[at + 1 :]])


def renewed_by_the_old_one(history: History) -> History:
    at = find(history, picks("lease", epoch=2))
    old = Event(9.05, "lease", "v1", 0, {"name": LEASE, "epoch": 1, "holder": "v1", "verb": "renewed"})
    return History(events=[*history.events[: at + 1], old, *history.events[at + 1 :]])


def superseded_judges(history: History) -> History:
    """The first leader judges after the second was elected."""
    at = find(history, picks("judged", 2))
    election = Event(history.events[at].at - 0.01, "lease", "v2", 0,
                    {"name": LEASE, "epoch": 2, "holder": "v2", "verb": "acquired"})  # fmt: skip
    events = [e for e in history.events if e.fields.get("epoch") != 2 or e.kind != "lease"]
    at = events.index(history.events[at])
    return History(events=[*events[:at], election, *events[at:]])


def judged_after_giving_back(history: History) -> History:
    at = find(history, picks("judged", 2))
    back = Event(history.events[at].at - 0.01, "lease", "v1", 0,
                 {"name": LEASE, "epoch": 1, "holder": "v1", "verb": "released"})  # fmt: skip
    return History(events=[*history.events[:at], back, *history.events[at:]])


def too_many_commits(history: History) -> History:
    """A Scheduler commits, again and again, what moves nothing on."""
    at = find(history, picks("accepted", 1, idx=1))
    story = Story()
    story.now = 1.35
    for _ in range(2):
        story.now -= 0.099
        story.commit(1, (1, "running", "ready"), (1, "ready", "running"))
    idle = [e for e in story.history.events if e.kind == "moved"]
    return History(events=[*history.events[:at], *idle, *history.events[at:]])


def late_effect(history: History) -> History:
    """The silent attempt takes effect after its undo, at a service that does not fence."""
    return repeated(history, picks("effect", 2, doing="do", key="t2/charge/1/do"), after=picks("ended", 2))


FALSE: list[tuple[str, str, Falsify]] = [
    ("I1", "processed) went to undoing", ended_and_moved_on),
    ("I1", "no operator had asked", step_moved_after_the_end),
    ("I1", "submission 1 ended", lambda h: changed(h, picks("ended", 3, submission=2), submission=1)),
    ("I1", "went to pending", lambda h: dropped(h, picks("act", 3, what="resubmit"))),
    ("I1", "takes resubmit", lambda h: changed(h, picks("act", 3, what="resubmit"), what="settle")),
    ("I1", "takes resubmit", lambda h: changed(h, picks("act", 3, what="resubmit"), verdict="refused")),
    ("I1", "lock of a task that had ended", lambda h: repeated(h, picks("released", 4), after=picks("ended", 4))),
    ("I2", "answered twice", lambda h: repeated(h, picks("accepted", 1, idx=1))),
    ("I2", "completed twice in round 1", lambda h: repeated(
        repeated(h, picks("sent", 1, idx=1), after=picks("taken", 1, idx=1), attempt=2),
        picks("accepted", 1, idx=1), attempt=2)),
    ("I3", "superseded by attempt 2", lambda h: repeated(
        h, picks("sent", 1, idx=1), after=picks("taken", 1, idx=1), attempt=2)),
    ("I3", "it came 2.000 s after", lambda h: changed(h, picks("accepted", 1, idx=1), complete_by=1.0, came=3.0)),
    ("I3", "judged silent", lambda h: repeated(h, picks("judged", 2), after=picks("taken", 2, idx=1, attempt=2), attempt=2)),
    ("I3", "had not been asked", lambda h: dropped(h, picks("sent", 1, idx=1))),
    ("I3", "asked to do under attempt 1; a reply to undo", lambda h: changed(h, picks("accepted", 1, idx=1), doing="undo")),
    ("I4", "is in place 2 times", lambda h: changed(h, picks("effect", 1), net=2)),
    ("I4", "is in place -1 times", lambda h: changed(h, picks("effect", 2, doing="undo"), net=-1)),
    ("I5", "although attempt 1 had been used", lambda h: changed(h, picks("sent", 2, doing="undo", idx=1), attempt=1)),
    ("I5", "under another key", lambda h: repeated(h, picks("sent", 1, idx=1), attempt=2, key="else")),
    ("I5", "under the key of reserve, round 1", lambda h: changed(h, picks("sent", 3, round=2, idx=0), key="t3/reserve/1/do")),
    ("I5", "which no commit had handed out", lambda h: changed(h, picks("call", 1), attempt=7)),
    ("I5", "a key that no commit", lambda h: changed(h, picks("call", 1), key="never heard of")),
    ("I5", "with the token (1, 7)", lambda h: changed(h, picks("call", 1), token=[1, 7])),
    ("I5", "tokens do not rise", lambda h: changed(h, picks("call", 2, doing="undo", step="charge"), token=[0, 2])),
    ("I5", "by its moves it is in round 2", lambda h: changed(h, picks("sent", 3, round=2, idx=0), round=1)),
    ("I6", "epoch 1 had been given", claimed_by_two),
    ("I6", "while s1 held it", seized),
    ("I6", "s2 decided", decided_by_another),
    ("I6", "a1 had it already", taken_by_two),
    ("I6", "was taken", lambda h: changed(h, picks("taken", 1), attempt=5)),
    ("I7", "superseded by the term 2", superseded_judges),
    ("I7", "lease was given back", judged_after_giving_back),
    ("I7", "nobody ever held the lease", lambda h: dropped(dropped(h, picks("lease")), picks("lease"))),
    ("I7", "v1 had had epoch 1", lambda h: changed(h, picks("lease", epoch=2), epoch=1)),
    ("I7", "renewed the lease", renewed_by_the_old_one),
    ("I8", "counted twice", judged_again),
    ("I8", "answered", lambda h: repeated(h, picks("judged", 2), after=picks("ended", 2), attempt=2)),
    ("I8", "so at most 3", lambda h: changed(h, picks("judged", 2), failures=4)),
    ("I8", "never handed out", lambda h: changed(h, picks("judged", 2), attempt=4)),
    ("I8", "of the 9.000 s that it had", lambda h: changed(h, picks("taken", 2, idx=1, attempt=1), within=9.0)),
    ("I8", "nobody held", lambda h: repeated(h, picks("released", 4))),
    ("I9", "these were not: reserve (done)", without_undo_of_reserve),
    ("I9", "before what came after it was settled: charge (done)", undo_in_wrong_order),
    ("I9", "although the task was processing", undo_without_decision),
    ("I9", "certainly never started", undo_of_what_never_started),
    ("I9", "before the deadline of its attempt 1, whose process seemed dead", undo_before_deadline),
    ("I8", "as its process was dead; it is not resumed", lambda h: changed(h, picks("judged", 2), dead=True)),
    ("I9", "was in flight", undo_in_flight),
    ("I9", "no alert says that it is stuck", given_up_in_silence),
    ("I10", "before what it follows: reserve (running)", started_too_soon),
    ("I10", "although the task was pending", lambda h: moved_behind(h, picks("moved", 1), picks("taken", 1))),
    ("I11", "with 0.000 s left", lambda h: changed(h, picks("call", 1), remaining=0.0)),
    ("I12", "given two tasks", lambda h: changed(h, picks("submitted", 2), key="order-1")),
    ("I13", "the reply to attempt 1 had been refused", done_without_reply),
    ("I13", "without an accepted reply", lambda h: dropped(h, picks("accepted", 1, idx=1))),
    ("I13", "from undoing to undone", lambda h: dropped(h, picks("accepted", 2, doing="undo"))),
    ("I13", "from running to failed", lambda h: changed(h, picks("accepted", 4, reply="permanent"), reply="done")),
    ("I16", "but it was running", lambda h: changed(h, moving(1, 1, "running", "done"),
        moves=[(1, "in_doubt", "done", 1, 1), ("task", "processing", "processed")])),
    ("I16", "not an allowed move", lambda h: changed(h, moving(2, 1, "running", "in_doubt"), moves=[(1, "running", "kept", 1, 1)])),
    ("I16", "its moves say processed", lambda h: changed(h, picks("ended", 1), state="undone")),
    ("I14", "a task that is error was removed", lambda h: changed(h, picks("removed"), state="error")),
    ("I14", "a task that is processing was removed", lambda h: moved_behind(h, picks("removed"), picks("notified", 2, sequence=2))),
    ("I14", "1 messages are for", lambda h: changed(h, picks("removed"), unheard=1)),
    ("I14", "still to be told", lambda h: changed(h, picks("removed"), unsent=1)),
    ("I14", "still to be told", lambda h: changed(dropped(h, picks("notified", 2, sequence=4)), picks("notice", 2, sequence=4), queue="")),
    ("I14", "left what nothing keeps", lambda h: changed(h, picks("swept"), overdue=[3])),
    ("I17", "the circuit of a is open since", lambda h: changed(h, picks("circuit", state="half-open"), state="open")),
    ("I17", "half-open, and a second call began", two_canaries),
    ("I17", "a failure of reserve was counted", excused_and_counted),
    ("I18", "the do of reserve was sent again", lambda h: repeated(h, picks("call", 5, attempt=2), later=KEEPS + 1)),
    ("I18", "the undo of charge was sent again", lambda h: repeated(h, picks("call", 2, doing="undo"), later=KEEPS + 1)),
    ("I18", "does not say that its key is too old", given_up_for_no_reason),
    ("L2", "is undone, and its effect is in place 1 times", late_effect),
    ("L2", "is done, and its effect is in place 0 times", lambda h: changed(h, picks("effect", 1, key="t1/charge/1/do"), net=0)),
    ("L2", "no alert was raised", lambda h: dropped(h, picks("alert", 4))),
    ("L2", "and charge is running", lambda h: changed(h, moving(1, 1, "running", "done"), moves=[("task", "processing", "processed")])),
    ("I19", "0.500 s before its start", lambda h: changed(h, picks("began"), early=0.5)),
    ("I20", "ended a second wait", lambda h: repeated(h, picks("used"))),
    ("I20", "used signal a before b", lambda h: changed(h, picks("signalled", id="b"), seq=0)),
    ("I20", "a signal for the step reserve", lambda h: changed(h, picks("signalled", id="a"), step="reserve")),
    ("I20", "that nobody sent", lambda h: dropped(h, picks("signalled", id="a"))),
    ("I20", "by signal_came at 11.200 s by s1, with 0 signals", lambda h: dropped(h, picks("used"))),
    ("I20", "is kept again", lambda h: repeated(h, picks("kept", id="b"), after=picks("waited"), id="a")),
    ("I21", "its moment had not come", lambda h: changed(h, picks("waited", reason="timed_out"), now=WITHIN)),
    ("I21", "a signal had come 1.000 s before", lambda h: changed(h, picks("signalled", id="c"), now=WITHIN + 2.0)),
    ("I21", "waits for 6.000 s", lambda h: changed(h, picks("timeout"), now=2.0)),
    ("I22", "is neither used nor kept", lambda h: dropped(h, picks("kept", id="c"))),
    ("I22", "is not in the store", lambda h: changed(h, picks("acknowledged"), id="z")),
    ("I22", "was accepted twice", lambda h: repeated(h, picks("acknowledged"))),
    ("I28", "was let go while attempt 1 of charge was in flight", lambda h: dropped(h, picks("accepted", 6, reply="later"))),
    ("I28", "it sleeps until 90.000 s from then", lambda h: changed(h, picks("suspended"), wakes=90.0)),
    ("I28", "it sleeps until only a message", lambda h: changed(h, picks("suspended"), wakes=None)),
    ("L7", "was let go for 0.300 s", lambda h: changed(h, moving(6, "task", "processing", "processed"),
        moves=[("task", "processing", "sleeping")])),
    ("L7", "nobody read signal c for", read_late),
    ("L8", "which only waits, for 60.000 s", lingering),
    ("I29", "in which 1 went, and 1 may go", lambda h: moved_behind(h, moving(7, "task", "processing", "processed"), picks("moved", 8))),
    ("I29", "which does not have its lanes", lambda h: dropped(h, moving(8, "task", "queued", "processing"))),
    ("I30", "before task 8, which was submitted earlier", out_of_order),
    ("I31", "its places are held; they should be out", lambda h: dropped(h, picks("lane", 7, state="out"))),
    ("L9", "its lanes were free for 60.100 s", lambda h: later(h, moving(8, "task", "queued", "processing"))),
    ("I24", "has two tasks", lambda h: changed(h, firing(20.2), tasks=[(120, KEY)])),
    ("I24", "has no key", lambda h: changed(h, firing(20.2), tasks=[(120, None)])),
    ("I24", "and [] is due", lambda h: changed(h, firing(10.5), calendar=9.9)),
    ("I24", "fired ['tick@1970-01-01T00:00:20Z']", lambda h: changed(h, firing(20.2), tasks=[(120, "tick@1970-01-01T00:00:20Z")])),
    ("I24", "fired []", lambda h: changed(h, firing(20.2), tasks=[])),
    ("I24", "counts 1 firings", lambda h: changed(h, firing(20.2), tasks=[])),
    ("I24", "is not as it was left", lambda h: dropped(h, firing(20.2))),
    ("I24", "goes back by 5.000 s", lambda h: changed(h, firing(20.2), progress={"since": 5.0, "firings": 2})),
    ("I24", "should skip {'gap': 1}", lambda h: changed(h, firing(33.0), progress={"since": 28.0, "firings": 3})),
    ("I24", "should skip {'missed': 2}", lambda h: changed(h, firing(56.0), progress={"since": 55.0, "firings": 4, "skips": {"gap": 1}})),
    ("I24", "should skip {'paused': 1}", lambda h: changed(h, firing(76.0), progress={"since": 76.0, "firings": 4, "skips": {}})),
    ("I24", "and should skip {}", lambda h: changed(h, firing(57.0), calendar=65.5)),
    ("I24", "and its pause was over", lambda h: changed(h, firing(76.0), former_pause=(57.0, 60.0))),
    ("I24", "while the schedule was paused", lambda h: changed(h, firing(66.0), tasks=[(166, LATER)])),
    ("I24", "of a time when it was paused", fired_for_a_pause),
    ("I24", "could not be fired", lambda h: changed(h, firing(20.2), progress={"since": 10.0, "failures": 1, "trouble": "no"})),
    ("I24", "keeps tick@1", lambda h: changed(h, firing(20.2), progress={"since": 20.0, "firings": 2, "buffer": {"key": KEY}})),
    ("I24", "1.000 s from its last moment", lambda h: changed(h, firing(20.2), progress={"since": 21.0, "firings": 2})),
    ("I24", "nobody has dealt with tick@1970-01-01T00:01:20", lambda h: dropped(dropped(h, firing(66.0)), firing(76.0))),
    ("L3", "notice 3 of it was never written", lambda h: dropped(h, picks("notice", 1, state="processed"))),
    ("L3", "was written as the 3. of its task", lambda h: changed(h, picks("notice", 1, state="processed"), sequence=4)),
    ("L3", "it came to processing", lambda h: changed(h, picks("notice", 1, sequence=2), state="undoing")),
    ("L3", "it never came to that state", lambda h: repeated(h, picks("notice", 1, sequence=3), sequence=4, state="undone")),
    ("L3", "not written in the commit", lambda h: moved_behind(h, picks("notice", 2, sequence=3), picks("taken", 2, idx=0, doing="undo"))),
    ("L3", "notice 2 arrived, and notice 1 had not", lambda h: dropped(h, picks("notified", 1, sequence=1))),
    ("L3", "nothing that was committed says so", lambda h: changed(h, picks("notified", 1, sequence=2), state="processed")),
    ("L3", "notice 4 (undone) never arrived", lambda h: dropped(h, picks("notified", 2, sequence=4))),
    ("L3", "is processing, and the task is processed", lambda h: dropped(h, picks("notified", 1, sequence=3))),
    ("L4", "rows without a task", lambda h: changed(h, picks("rest"), orphans=["step 3 of task 9"])),
    ("L4", "leases held by the dead", lambda h: changed(h, picks("rest"), leases_held_by_dead=["v1"])),
    ("L4", "messages that nobody used up", lambda h: changed(h, picks("rest"), inbox_rows=1)),
    ("L4", "requests of tasks that have ended", lambda h: changed(h, picks("rest"), request_rows=2)),
    ("L4", "slots are taken that no call has: w1", lambda h: changed(h, picks("rest"), slots_lost=["w1, shop/desk: 3 of 4 free"])),
    ("L5", "at most 3", too_many_commits),
    ("L6", "two tasks were made of message m1", lambda h: repeated(h, picks("made"), after=picks("handled", id="m1"))),
    ("L6", "was acknowledged, and there is no task", lambda h: dropped(h, picks("made"))),
    ("I32", "charge was cancelled, and runs on", running_on),
    ("I33", "that nobody wrote", lambda h: changed(h, picks("noted", 1), n=99)),
    ("I33", "which did not write it", lambda h: changed(h, picks("noted", 1), attempt=2)),
    ("I33", "a second time", lambda h: repeated(h, picks("noted", 1))),
    ("I33", "note 11 of reserve comes after 14", lambda h: moved_behind(h, picks("noted", 1, n=11), picks("noted", 1, n=14))),
    ("I33", "is called late, and its attempt was under way", lambda h: changed(h, picks("noted", 1), late=True)),
    ("I33", "and is not called late", lambda h: moved_behind(h, picks("noted", 1, n=14), moving(1, "task", "processing", "processed"))),
    ("I33", "of its 4 notes 1 are in the history or skipped", lambda h: dropped(h, picks("noted", 1, n=14))),
    ("I33", "of its 4 notes 3 are in the history or skipped", lambda h: changed(h, picks("noted", 1, n=14), skipped=1)),
    ("L6", "waits for ever", lambda h: dropped(h, picks("handled", id="m2"))),
    ("L6", "and a task was made of it", lambda h: repeated(h, picks("made"), message="m2")),
    ("L6", "and no alert was raised", lambda h: dropped(h, picks("alert", alert="dead_letter"))),
]  # fmt: skip
"""Invariant, what the report must say, and how the good history is falsified."""


def test_a_good_history_passes_and_every_invariant_had_something_to_look_at() -> None:
    history = good()
    report = check(history, final(history))
    assert report.ok, str(report)
    assert report.idle == []
    assert report.excuses == {}


@pytest.mark.parametrize(
    ("name", "says", "falsify"), FALSE, ids=[f"{name}: {says}" for name, says, _ in FALSE]
)
def test_a_falsified_history_is_caught(name: str, says: str, falsify: Falsify) -> None:
    """The violation stands under its invariant, tells what went wrong, and shows an event of the history."""
    history = falsify(good())
    report = check(history, final(history))
    violations = [v for v in report.of(name) if says in v.text]
    assert violations, f"{name} does not say {says!r}:\n{report}"
    assert all(event in history.events for v in violations for event in v.events)
    assert name in report.violated_invariants()


LAST: list[tuple[str, str, Callable[[History], Final]]] = [
    ("I12", "is not in the store", lambda h: replace(final(h), tasks=final(h).tasks[1:])),
    ("I16", "the task's row says processing", lambda h: final(dropped(h, moving(1, "task", "processing", "processed")))),
    ("I16", "the store's history of it says waiting", lambda h: replace(final(h), histories={**final(h).histories, 1: []})),
    ("I16", "history row 0 says", lambda h: replace(final(h), histories={1: final(h).histories[1][1:]})),
    ("L2", "not listed: reserve", lambda h: final(changed(h, moving(4, 0, "running", "done"),
        moves=[(0, "running", "undone", 1, 1), (1, "ready", "running", 1, 1)]))),
]  # fmt: skip


@pytest.mark.parametrize(("name", "says", "rows"), LAST, ids=[f"{name}: {says}" for name, says, _ in LAST])
def test_false_rows_in_the_end_are_caught(name: str, says: str, rows: Callable[[History], Final]) -> None:
    """What the store and its history rows say is compared with what happened."""
    history = good()
    report = check(history, rows(history))
    assert [v for v in report.of(name) if says in v.text], f"{name} does not say {says!r}:\n{report}"


def test_a_task_that_never_ends_breaks_l1() -> None:
    story = Story()
    story.processed(1)
    story.begin(2)
    story.rest(2)
    report = check(story.history, final(story.history))
    (violation,) = report.of("L1")
    assert violation.task == 2
    assert "the task is processing" in violation.text
    assert "charge running" in violation.text


def test_a_task_whose_lanes_are_free_in_the_end_breaks_l9() -> None:
    """And one that waits for another, which has its lane, does not."""
    story = Story()
    story.lane_mates(1)
    for task in (2, 3):
        story.submit(task)
        story.place(task, "waiting", "c")
    story.rest(3)
    (violation,) = check(story.history, final(story.history)).of("L9")
    assert violation.task == 2
    assert "the task is queued, and its lanes are free" in violation.text


def test_a_store_that_holds_fewer_tasks_than_it_acknowledged_breaks_i12() -> None:
    """Even when nobody hands in the rows."""
    report = check(changed(good(), picks("rest"), tasks=5))
    assert "8 submissions were acknowledged" in report.of("I12")[0].text


def test_no_rule_is_vacuous() -> None:
    """Every invariant has a rule and a falsified history."""
    names = {name for name, *_ in FALSE} | {name for name, *_ in LAST} | {"L1"}
    assert names == {rule.name for rule in RULES}


def test_an_empty_history_passes_nothing_in_silence() -> None:
    """Nothing was violated, and the report says of each invariant that there was nothing to look at."""
    report = check(History())
    assert report.ok
    assert set(report.idle) | set(report.excuses) == {rule.name for rule in RULES}
    assert "nothing to look at: I1, I2" in str(report)
    assert "not applicable: I14, nothing was removed" in str(report)


def test_a_history_that_never_says_when_a_reply_came_does_not_pass_for_in_time() -> None:
    """Half of I3 had nothing to look at then, and the report says so."""
    history = good()
    events = [
        replace(event, fields={name: value for name, value in event.fields.items() if name != "came"})
        for event in history.events
    ]
    assert "I3, in time" not in str(check(history))
    assert "not applicable: I3, in time, no event" in str(check(History(events=events)))


@pytest.mark.parametrize(("name", "part"), [(rule.name, rule.part) for rule in RULES if rule.part])
def test_what_a_world_lacks_is_said_not_to_apply(name: str, part: tuple[str, str]) -> None:
    """And as soon as there is anything of it, it applies."""
    history = good()
    kind, why = part
    bare = History(events=[event for event in history.events if event.kind != kind])
    excuses = check(bare, final(bare)).excuses
    assert excuses[name] == why
    assert set(excuses) == {rule.name for rule in RULES if rule.part and rule.part[0] == kind}
    assert check(history, final(history)).excuses == {}


def test_what_an_operator_has_twice_counts_as_a_first_request() -> None:
    """In a history in which nobody acts, the same call is one too many."""
    twice = repeated(good(), picks("call", 2, doing="undo"), later=KEEPS + 1)
    at = find(twice, picks("call", 2, doing="undo"))
    before = twice.events[at + 1].at - 0.5
    end = Event(before, "moved", "s1", 2, {"moves": [("task", "undoing", "error")], "cause": "", "note": ""})
    act = Event(before + 0.1, "act", "s1", 2, {"what": "undo", "verdict": "applied", "reason": ""})
    events = [*twice.events[: at + 1], end, act, *twice.events[at + 1 :]]
    assert check(twice, final(twice)).of("I18")
    assert not check(History(events=events), final(twice)).of("I18")


def test_without_keys_that_are_forgotten_i18_does_not_apply() -> None:
    report = check(good())
    assert report.excuses["I18"] == "no step was sent whose service forgets its key"


def test_acts_are_found_wherever_their_commit_notes_them() -> None:
    """The order of events within one commit does not matter: here the act stands before the moves."""
    history = good()
    at = find(history, picks("act", 3, what="resubmit"))
    events = list(history.events)
    events.insert(find(history, moving(3, "task", "undone", "pending")), events.pop(at))
    assert check(History(events=events), final(history)).ok


def test_a_signal_that_a_commit_writes_parts_no_act_from_its_moves() -> None:
    """A commit may wake a task by a signal of its own process, and carry out an act on another one."""
    history = good()
    at = find(history, picks("act", 3, what="resubmit"))
    act, signal = history.events[at], history.events[find(history, picks("signalled", id="a"))]
    events = list(history.events)
    events.insert(at, replace(signal, at=act.at, node=act.node, fields={**signal.fields, "id": "z"}))
    assert check(History(events=events), final(history)).of("I1") == []


@pytest.mark.parametrize(("kind", "step"), [("undo_stuck", "charge"), ("poison", ""), ("unreadable", "")])
def test_an_undo_may_end_in_error_when_an_alert_says_why(kind: str, step: str) -> None:
    """The step before is barred by the one that is stuck, so that one needs no alert of its own."""
    history = given_up_in_silence(good())
    assert [v.text for v in check(history, final(history)).of("I9") if "reserve" in v.text] == []
    repetition = repeated(history, picks("alert", 1), later=0.0, alert=kind, step=step)
    assert check(repetition, final(repetition)).of("I9") == []


def test_what_the_store_writes_of_a_release_is_not_a_decision() -> None:
    """The store's own history has a row for a freed task; it must not count as a Scheduler's Decision."""
    history = good()
    at = find(history, picks("released", 4))
    release = history.events[at]
    moves = {"moves": [("task", "processing", "pending")], "cause": "", "note": ""}
    row = replace(release, kind="moved", fields=moves)
    note = replace(release, kind="moved", node="a1", fields={**moves, "moves": []})
    events = [*history.events[: at + 1], row, note, *history.events[at + 1 :]]
    assert check(History(events=events), final(history)).ok


def test_a_task_at_rest_may_be_claimed_again_and_again_for_acts_that_are_refused() -> None:
    """Nobody holds it afterwards, so nobody is robbed of it."""
    history = good()
    at = find(history, picks("ended", 1)) + 1
    last = history.events[at]
    claims = [
        replace(last, at=last.at + epoch / 100, kind="claimed", task=1, fields={"epoch": epoch, "lost": 0})
        for epoch in (2, 3)
    ]
    events = [*history.events[: at + 1], *claims, *history.events[at + 1 :]]
    assert check(History(events=events), final(history)).ok


def test_a_scheduler_may_commit_later_than_its_reply_came() -> None:
    """A reply that lay in the store while its task was taken over came in time all the same."""
    history = changed(good(), picks("accepted", 1, idx=1), complete_by=1.3, came=1.2, now=31.0)
    assert check(history, final(history)).ok


def test_a_probe_may_cost_one_failure_more() -> None:
    """A step in doubt is probed a last time when its failures are used up."""
    history = changed(good(), picks("judged", 2), failures=4)
    rows = final(history)
    assert check(history, rows).violated_invariants() == ["I8"]
    policy = PLANS[1].policy
    assert policy is not None
    for detail in rows.tasks:
        view = detail.steps[1]
        detail.steps[1] = view.__class__(
            **{name: getattr(view, name) for name in view.__struct_fields__ if name != "plan"},
            plan=PLANS[1].__class__(1, name="charge", after=(0,), policy=policy.__class__(10.0, threshold=1, probe=True)),
        )  # fmt: skip
    assert check(history, rows).ok


@pytest.mark.parametrize(
    ("plan", "length", "calendar", "early"),
    [
        (("", "3.0"), 3.0, 0.0, ""),
        (("", "3.0"), 2.5, 0.0, "rest ended 0.500 s before its moment"),
        (("until", '"1970-01-01T01:01:40+01:00[Europe/Berlin]"'), 9.0, 100.0, ""),
        (("until", '"1970-01-01T00:01:40+00:00"'), 9.0, 98.0, "rest ended 2.000 s before its moment"),
    ],
)
def test_no_sleep_ends_before_its_moment_but_by_wake(
    plan: tuple[str, str], length: float, calendar: float, early: str
) -> None:
    story = Story()
    story.submit(1)
    nap = StepPlan(0, "sleep", "rest", action=plan[0], args=Template((plan[1],)))
    view = TaskView(
        1, "shop", "order", None, "processing", "forward", 1, 0, "", 0, None, 1, None, 0.0, None, None
    )
    step = StepView(0, "sleep", "rest", "", "", "done", 0, 1, 0, doubt=False, undoable=False, plan=nap)
    rows = Final(tasks=[TaskDetail(view, [step])])

    def slept(*before: str) -> str:
        for act in before:
            story.note("act", "s1", 1, what=act, verdict="applied", reason="")
        story.history.note("slept", "s1", 1, idx=0, length=length, calendar=calendar)
        story.history.note("moved", "s1", 1, moves=[(0, "ready", "done", 0, 1)], cause="", note="")
        return "; ".join(violation.text for violation in check(story.history, rows).of("I19"))

    assert slept("wake") == ""
    text = slept("extend")
    assert early in text
    assert bool(early) is bool(text)


@pytest.mark.parametrize(
    ("by", "is_local", "rests", "reply", "text"),
    [
        ("s1", True, True, "", "was let go while attempt 1 of charge was in flight"),
        ("s1", True, False, "", "was let go while attempt 1 of charge was in flight"),
        ("s1", True, False, "later", "was let go while attempt 1 of charge was in flight"),
        ("a1", False, False, "", "was let go while attempt 1 of charge was in flight"),
        ("s1", True, True, "later", ""),
        ("a1", False, True, "", ""),
        ("s1", False, True, "", ""),
        ("s2", True, True, "", ""),
    ],
)
def test_a_task_rests_only_while_its_scheduler_runs_no_attempt_of_it(
    by: str, is_local: bool, rests: bool, reply: str, text: str
) -> None:
    """An attempt has ended with its reply, also if that went through the store and was lost."""
    story = Story()
    story.begin(1)
    if is_local:
        event = story.history.events[-2]
        story.history.events[-2] = replace(event, fields={**event.fields, "local": True})
    story.note("taken", by, 1, idx=1, doing="do", attempt=1, by=by, within=5.0)
    if reply:
        story.note("reply", by, 1, idx=1, doing="do", attempt=1, reply=reply)
    story.commit(1, ("task", "processing", "sleeping"))
    story.history.note("suspended", "s1", 1, wakes=None, due=None, rests=rests)
    reports = [violation.text for violation in check(story.history, final(story.history)).of("I28")]
    assert text in "".join(reports)
    assert bool(reports) is bool(text)


def test_a_scheduler_that_holds_too_many_tasks_is_noticed() -> None:
    story = Story()
    story.begin(1)
    assert not check(story.history, final(story.history)).of("L8")
    story.history.note("overfull", "s1", 0, count=21, most=10)
    (violation,) = check(story.history, final(story.history)).of("L8")
    assert violation.text == "its Scheduler holds 21 tasks, and 10 are its most"


@pytest.mark.parametrize(
    ("ends", "fault", "reply", "text"),
    [
        ("hears", "", "", ""),
        ("judged", "", "", "nobody needed charge at"),
        ("judged", "stop", "", ""),
        ("judged", "service hangs", "", "nobody needed charge at"),
        ("judged", "", "before", ""),
        ("judged", "", "after", "nobody needed charge at"),
        ("runs on", "", "", "charge was cancelled, and runs on at"),
    ],
)
def test_an_action_that_nobody_needs_hears_and_gives_way(
    ends: str, fault: str, reply: str, text: str
) -> None:
    """``reply``: whether it answers, and the store refuses that, before or after its cancel."""
    story = Story()
    story.begin(1)
    history = story.history
    history.note("taken", "a1", 1, idx=1, doing="do", attempt=1, by="a1", within=5.0)
    if fault:
        history.note("fault", "a1", what=fault, point="")
    if reply == "before":
        history.note("reply", "a1", 1, idx=1, doing="do", attempt=1, reply="done")
    history.note("cancelled", "s1", 1, idx=1, attempt=1, by="a1")
    if reply == "after":
        history.note("reply", "a1", 1, idx=1, doing="do", attempt=1, reply="done")
    if ends == "runs on":
        history.note("hears", "a1", 1, idx=1, attempt=1)
    event = Event(history.clock() + 4.0, ends, "a1", 1, {"idx": 1, "attempt": 1, "failures": 1, "epoch": 1})
    reports = [
        violation.text
        for violation in check(replace(history, events=[*history.events, event]), final(history)).of("I32")
    ]
    assert text in "".join(reports)
    assert bool(reports) is bool(text)


@given(st.lists(st.sampled_from(["processed", "undone", "resubmitted", "held"]), min_size=1, max_size=8))
def test_any_mixture_of_good_lives_passes(lives: list[str]) -> None:
    """No false alarm, however many tasks there are and however they end."""
    story = Story()
    story.lead("v1", 1)
    for task, life in enumerate(lives, 1):
        getattr(story, life)(task)
    story.rest(len(lives))
    report = check(story.history, final(story.history))
    assert report.ok, str(report)


@given(st.data())
def test_dropping_a_decision_is_always_noticed(data: st.DataObject) -> None:
    """Whichever committed Decision is missing from a history, the fold no longer fits."""
    history = good()
    places = [n for n, event in enumerate(history.events) if event.kind == "moved"]
    at = data.draw(st.sampled_from(places))
    events = [event for n, event in enumerate(history.events) if n != at]
    assert "I16" in check(History(events=events), final(history)).violated_invariants()


def test_the_report_shows_the_rule_the_words_and_the_events() -> None:
    history = judged_again(good())
    report = check(history, final(history))
    text = str(report)
    assert "I8 (one silence is counted once" in text
    at = history.events[find(history, picks("judged", 2))].at
    sentence = f"the silence of attempt 1 of charge was counted twice: at {at:.3f} s by v1 and at {at + 0.01:.3f} s by v1"
    assert sentence in text
    assert "judged    task 2" in text
    assert "looked at: I1 10" in text
