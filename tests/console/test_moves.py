"""The history as a table: moves that belong together are one line, and nobody's words are taken for makegood's."""

from makegood.console.moves import HistoryRow, history_rows
from makegood.election.protocol import PastTerm
from makegood.model.decision import Move
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
    made = rows(
        event(
            1.0,
            ("book", "waiting", "ready", "predecessors done or skipped"), ("book", "ready", "running", "dispatched"),
            ("pack", "waiting", "ready", "predecessors done or skipped"), ("pack", "ready", "running", "dispatched"),
        ),
        event(2.0, *((f"line[{n}]", "running", "done", "reply") for n in (0, 1, 2, 5))),
    )  # fmt: skip
    assert [(row.what, row.before, row.after) for row in made] == [
        ("book, pack", "waiting", "running"), ("line[0] to [5] (4 of them)", "running", "done"),
    ]  # fmt: skip
    assert [row.begins for row in made] == [True, True]


def test_the_supervisor_that_led_wrote_what_no_scheduler_wrote() -> None:
    """It is the holder of the lease's term at that time."""
    (freed,) = rows(event(3.0, ("task", "processing", "pending", "its scheduler is dead"), node=None))
    assert (freed.who, freed.kind) == ("vm-9, leads", "decision")


def test_decisions_leave_out_what_nobody_had_to_decide() -> None:
    """Acts stand among them, and alone under their own tab."""
    act = AuditView(
        "a", 7, "undo", "bob", "refunds open", "applied", "what was done is taken back", "undoing", 2.5
    )
    events = (
        event(1.0, ("book", "running", "done", "reply")),
        event(2.0, ("charge", "running", "in_doubt", "expired")),
        event(3.0, ("task", "error", "undoing", "undo by bob")),
    )
    made = rows(*events, show="decisions", audits=(act,))
    assert [row.what for row in made] == ["charge", "Undo asked for: “refunds open”", "task"]
    assert [row.who for row in rows(*events, show="acts", audits=(act,))] == ["bob"]
    assert len(rows(*events, audits=(act,))) == 4


def test_an_operator_s_words_are_not_taken_for_a_late_reply() -> None:
    """A note holds both; what stands behind an act is the operator's."""
    real = "done came too late for the do of step 2, attempt 1"
    made = rows(
        event(
            1.0,
            note=f"{real}; undo by eve (x; done came too late for the do of step 9, attempt 9) applied: y",
        )
    )
    assert [row.what for row in made] == [
        "The answer “done” to step 2, attempt 1, came too late: kept, changes nothing"
    ]
