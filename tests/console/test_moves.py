"""The history as a table: moves that belong together are one line, and nobody's words are taken for makegood's."""

from makegood.console.moves import HistoryRow, history_rows
from makegood.election.protocol import PastTerm
from makegood.model.attempt_end import AttemptEnd
from makegood.model.note import Note
from makegood.model.states import Move
from makegood.store.views import AuditView, EventView

NODES = {1: "vm-1", 2: "vm-2"}


def event(at: float, *moves: Move, node: int | None = 1, note: str = "") -> EventView:
    """Return an event."""
    return EventView(int(at * 10), 7, at, node, list(moves), note)


def rows(*events: EventView, show: str = "all", audits: tuple[AuditView, ...] = ()) -> list[HistoryRow]:
    """Return the table."""
    terms = [PastTerm(4, "vm-9", 0.0, None, released=False)]
    return history_rows(events, audits, nodes=NODES, terms=terms, show=show)


def test_moves_of_one_commit_that_are_alike_are_one_line() -> None:
    """And a step's moves that are chained are one move."""
    moves = rows(
        event(
            1.0,
            Move("book", "waiting", "ready", "preceded"), Move("book", "ready", "running", "dispatched"),
            Move("pack", "waiting", "ready", "preceded"), Move("pack", "ready", "running", "dispatched"),
        ),
        event(2.0, *(Move(f"line[{n}]", "running", "done", "reply") for n in (0, 1, 2, 5))),
    )  # fmt: skip
    assert [(row.what, row.before, row.after) for row in moves] == [
        ("book, pack", "waiting", "running"), ("line[0] to [5] (4 of them)", "running", "done"),
    ]  # fmt: skip
    assert [row.begins for row in moves] == [True, True]


def test_a_note_is_a_remark_of_its_step_before_what_its_commit_moved() -> None:
    """Its value is covered where the page is drawn, as any payload."""
    entry = EventView(
        10, 7, 1.0, 1, [Move("s", "running", "done", "reply")], notes=(Note(0, 2, "undo", "half", 3),)
    )
    table = history_rows([entry], (), nodes=NODES, steps={0: "copy"})
    assert [(row.what, row.payload, row.why) for row in table] == [
        ("the undo of copy", b'"half"', "note of attempt 2 (3 before it skipped)"), ("s", None, "reply"),
    ]  # fmt: skip
    assert rows(entry, show="acts") == []


def test_the_supervisor_that_led_wrote_what_no_scheduler_wrote() -> None:
    """It is the holder of the lease's term at that time."""
    (release,) = rows(event(3.0, Move("task", "processing", "pending", "scheduler_dead"), node=None))
    assert (release.who, release.kind) == ("vm-9, leads", "decision")


def test_decisions_leave_out_what_nobody_had_to_decide() -> None:
    """Acts stand among them, and alone under their own tab."""
    act = AuditView(
        "a", 7, "undo", "bob", "refunds open", "applied", "what was done is being undone", "undoing", 2.5
    )
    events = (
        event(1.0, Move("book", "running", "done", "reply")),
        event(2.0, Move("charge", "running", "in_doubt", "expired")),
        event(3.0, Move("task", "error", "undoing", "operator_undo")),
    )
    moves = rows(*events, show="decisions", audits=(act,))
    assert [row.what for row in moves] == ["charge", "Undo asked for: “refunds open”", "task"]
    assert [row.who for row in rows(*events, show="acts", audits=(act,))] == ["bob"]
    assert len(rows(*events, audits=(act,))) == 4


def test_a_late_reply_is_a_remark_with_the_name_of_its_step() -> None:
    """An operator's words, which may look like one, are not read."""
    note = "undo by eve (x; done came too late for step 9, attempt 9) applied: y"
    late = EventView(10, 7, 1.0, 1, [], note, (AttemptEnd(2, 1, "undo", "done", late=True),))
    assert [row.what for row in rows(late)] == [
        "The answer “done” to the undo of step 2, attempt 1, came too late: kept, changes nothing"
    ]


def test_a_lock_that_was_freed_is_a_line_although_the_task_stays_what_it_is() -> None:
    """A task at rest that was locked for an act loses its lock with its Scheduler."""
    (release,) = rows(event(3.0, Move("task", "error", "error", "new_generation"), node=None))
    assert (release.what, release.after, release.why) == ("task", "error", "the store began a new generation")
