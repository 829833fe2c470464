"""A batch of runs in which something never happened is refused, and says what; timelines are readable."""

import io
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console

from makegood.supervisor.supervisor import LEASE
from makegood.testing.checker import timeline
from makegood.testing.history import Event, History
from proofs.run_counts import RARE, WANTED, RunCounts, occurrences
from proofs.storms.rules import check
from tests.simulation.handmade_histories import Story, changed, dropped, final, good, moving, picks, repeated

ENABLED = ("kill", "duplicate", "delay")


def eventful(without: str = "") -> History:
    """Return a good history in which everything happens that a batch must contain, but for ``without``."""
    story = Story()
    story.lead("v1", 1)
    for task, life in enumerate(("processed", "undone", "resubmitted", "held"), 1):
        if (without, life) != ("end error", "held"):
            getattr(story, life)(task)
    story.submit(5)
    if without != "change of leader":
        story.note("lease", "v2", name=LEASE, epoch=2, holder="v2", verb="acquired")
    for what, point in (
        ("kill", "commit"),
        ("delay", "reply"),
        ("duplicate", "request"),
        ("duplicate", "reply"),
    ):
        if without not in (f"{what} {point}", what):
            story.note("fault", "s1", what=what, point=point)
    for kind, text in (("step_gave_up", "charge"), ("undo_stuck", "the undo of charge")):
        if without != kind:
            old = "its key is older than the 1m that the service keeps it"
            story.note("alert", "s1", 2, alert=kind, step="charge", text=f"{text}: {old}")
    for outcome in ("ambiguous committed", "ambiguous not committed"):
        if without != outcome:
            story.note("store", "s1", outcome=outcome, verbs=["commit"])
    waiting(story, without)
    in_lanes(story, without)
    story.scheduled()
    story.scheduled_elsewhere()
    reason = without.removeprefix("skip ")
    for event in story.history.of("schedule"):
        event["progress"]["skips"].pop(reason, None)
    if without == "firing after a change of leader":
        events = story.history.events
        events[:] = [replace(event, node="v2") if event.kind == "schedule" else event for event in events]
    return story.history


def waiting(story: Story, without: str) -> None:
    """A task that waits is let go, keeps signals before and after its end, and times out just before one comes."""
    if without != "let-go":
        story.note("suspended", "s1", 5, wakes=1.0, due=1.0)
    if without != "kept signal":
        story.note("kept", "s1", 5, name="charge", id="a")
    if without != "late signal":
        for task in (1, 2):
            story.note("kept", "s1", task, name="charge", id="a")
    story.note("timeout", "s1", 5, idx=0, due=9.0, now=4.0)
    late = 0.04 if without != "signal close to a timeout" else 0.06
    story.note("signalled", "c", 5, name="reserve", id="b", step="", seq=1, now=9.0 + late)
    if without != "timeout":
        story.note("waited", "s1", 5, idx=0, reason="timed_out", now=9.1)


def in_lanes(story: Story, without: str) -> None:
    """A task waits for another one of its lane, a submission is refused, and an operator releases a task in error."""
    story.lane_mates(6, *([7] if without != "lane wait" else []))
    if without != "lane refusal":
        story.note("lane refused", "c", 5, key="order-7")
    if without != "lane release":
        story.note("act", "", 4, what="release_lane", verdict="applied", reason="")


def without_end(state: str) -> Callable[[History], History]:
    """Return what leaves out every end in a state."""

    def leave_out(history: History) -> History:
        return History(events=[e for e in history.events if not (e.kind == "ended" and e["state"] == state)])

    return leave_out


def never(kind: str) -> Callable[[History], History]:
    """Return what leaves out every event of a kind."""
    return lambda history: History(events=[e for e in history.events if e.kind != kind])


def without_doubt(history: History) -> History:
    """Undo only what is done for certain."""
    for task in (2, 3):
        moves = [("task", "processing", "undoing"), (1, "done", "undoing", 2, 1)]
        history = changed(history, moving(task, "task", "processing", "undoing"), moves=moves)
    return history


LACKING: list[tuple[str, History]] = [
    ("end processed", without_end("processed")(eventful())),
    ("end undone", without_end("undone")(eventful())),
    ("end error", eventful("end error")),
    ("late reply", never("late")(eventful())),
    ("duplicate request", eventful("duplicate request")),
    ("duplicate reply", eventful("duplicate reply")),
    ("refused stale write", never("refused")(eventful())),
    ("change of leader", eventful("change of leader")),
    ("undo in doubt", without_doubt(eventful())),
    ("key too old", eventful("step_gave_up")),
    ("undo too old", eventful("undo_stuck")),
    ("ambiguous committed", eventful("ambiguous committed")),
    ("ambiguous not committed", eventful("ambiguous not committed")),
    *((name, eventful(name)) for name in [*WANTED][13:]),
]


def batch_of(history: History, *more: History) -> RunCounts:
    """Return a batch of these histories."""
    batch = RunCounts()
    for one in (history, *more):
        rows = final(history)
        batch.add(one, check(one, rows), kinds=ENABLED, label="seed 1")
    return batch


def full() -> RunCounts:
    """Return a batch that lacks nothing: an eventful history, and a good one that comes to rest."""
    batch = RunCounts()
    for history in (eventful(), good()):
        batch.add(history, check(history, final(history)), kinds=ENABLED)
    return batch


def test_a_batch_with_everything_lacks_nothing() -> None:
    assert full().lacking() == []
    assert full().ok


@pytest.mark.parametrize(("what", "history"), LACKING, ids=[what for what, _ in LACKING])
def test_a_batch_that_lacks_something_says_which(what: str, history: History) -> None:
    """Only this is lacking; everything else that a batch must contain is there."""
    assert set(WANTED) - set(occurrences(history)) == {what}
    batch = batch_of(history)
    batch.runs = max(batch.runs, RARE.get(what, 0))
    text = WANTED[what].removeprefix("a ").removeprefix("an ")
    assert f"no {text}" in batch.lacking()
    assert not batch.ok
    assert f"this batch proves too little: no {text}" in str(batch)


def test_every_wanted_occurrence_has_its_test() -> None:
    assert {what for what, _ in LACKING} == set(WANTED)


def test_a_fault_that_was_switched_on_must_happen() -> None:
    batch = full()
    batch.enabled.add("clock jump")
    assert batch.lacking() == ["no fault 'clock jump', although it was switched on"]


def test_an_invariant_that_had_nothing_to_look_at_is_lacking() -> None:
    """All runs together must give each invariant something to look at."""
    batch = RunCounts()
    history = eventful()
    batch.add(history, check(history, final(history)))
    assert [text for text in batch.lacking() if "L1" in text] == [
        "nothing for L1 to look at (in the end every task is processed, undone or in error)"
    ]


def test_a_change_of_leader_counts_only_while_tasks_are_under_way() -> None:
    """In ``good`` the second leader comes when all has ended."""
    assert occurrences(good())["change of leader"] == 0
    assert occurrences(eventful())["change of leader"] == 1
    again = repeated(eventful(), picks("lease", epoch=1), epoch=3)
    assert occurrences(again)["change of leader"] == 1, "v1 leads again: no change"


def test_a_late_copy_of_an_accepted_reply_is_a_duplicate_not_a_late_reply() -> None:
    history = repeated(
        never("late")(eventful()), picks("reply", 1, idx=1), after=picks("ended", 1), doing="do"
    )
    history.events.append(Event(99.0, "late", "a1", 1, {"idx": 1, "doing": "do", "attempt": 1}))
    counts = occurrences(history)
    assert counts["late reply"] == 0
    assert counts["duplicate reply"] == 2


def test_batches_of_several_processes_are_merged() -> None:
    """Ten thousand seeds may run in several processes."""
    one, other = batch_of(eventful()), batch_of(dropped(good(), picks("alert")))
    both = RunCounts()
    both.merge(one)
    both.merge(other)
    assert both.runs == 2
    assert both.happened == one.happened + other.happened
    assert [label for label, _ in both.violations] == ["seed 1"] * len(other.violations) != []
    assert both.lacking() == []
    assert not both.ok


def test_tables_show_what_was_violated_and_what_never_happened() -> None:
    batch = batch_of(never("removed")(eventful("ambiguous committed")))
    batch.merge(batch_of(never("removed")(dropped(good(), picks("alert")))))
    out = io.StringIO()
    for table in batch.tables():
        Console(file=out, width=200).print(table)
    text = out.getvalue()
    assert "violated" in text
    assert "never" in text
    assert "not applicable: nothing was removed" in text
    assert "fault: kill" in text


# -- timelines ---------------------------------------------------------------------------------------------------------


def test_a_timeline_is_aligned_and_says_who_did_what_to_which_task() -> None:
    lines = timeline(good()).splitlines()
    heads = [line for line in lines if line.startswith("task #")]
    assert len(heads) == 8
    body = lines[8:]
    assert len(body) == len(good().events)
    columns = {line.index("  #1") for line in body if "  #1" in line}
    assert len(columns) == 1
    text = "\n".join(body)
    assert "s1  #1  accepts done of reserve/1" in text
    assert "charge in_doubt -> undoing" in text
    assert "calls bank for undo charge/2, token 1.2, 4.000 s left" in text
    assert "operator's cancel: applied" in text


def test_a_timeline_marks_faults() -> None:
    lines = timeline(eventful()).splitlines()
    assert [line.split()[1] for line in lines if "FAULT" in line] == ["!!"] * 4
    assert any("FAULT kill at commit" in line for line in lines)


def test_a_timeline_of_one_task_shows_the_faults_and_no_other_task() -> None:
    text = timeline(eventful(), task=2)
    assert "#2" in text
    assert "#1" not in text
    assert "#4" not in text
    assert "FAULT kill" in text


def test_the_end_of_a_timeline_says_how_much_is_left_out() -> None:
    text = timeline(good(), last=3)
    assert f"... {len(good().events) - 3} lines before" in text
    assert len(text.splitlines()) == 8 + 1 + 3


def test_kinds_nobody_has_words_for_are_shown_as_they_are() -> None:
    history = History()
    history.note("whispered", "s1", 7, to="web")
    assert "whispered to='web'" in timeline(history)


def test_replies_in_the_store_and_clients_that_hear_the_end_have_their_sentences() -> None:
    history = History()
    history.note("answered", "n2", 7, idx=0, doing="do", attempt=2, complete_by=12.5, now=10.25)
    history.note("told", "shop", 7, state="undone")
    text = timeline(history)
    assert "the store has the reply of step 0/2, 2.250 s before its complete-by" in text
    assert "the client hears that the task is undone" in text
