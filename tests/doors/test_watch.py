"""The ladder and the preview of an undo: pure functions from records to text."""

from makegood.cli.render.ladder import Rung, event_lines, fold, in_order, ladder, probe_answers
from makegood.cli.render.output import plain
from makegood.model.attempt_end import AttemptEnd
from makegood.model.note import Note
from makegood.model.plan import StepPlan
from makegood.model.policy import Policy
from makegood.model.states import Move, StepState
from makegood.store.views import EventView, StepView, TaskDetail, TaskView
from makegood.story.undo_preview import fate, undo_order

POLICY = Policy(within=10.0)


def step(idx: int, name: str, state: StepState, **more: object) -> StepView:
    """Return a step of the agent "stock" that follows the one before it."""
    plan = more.pop("plan", None) or StepPlan(
        idx, name=name, agent="stock", action=name, after=(idx - 1,) if idx else (), policy=POLICY
    )
    facts = {
        "attempt": 1,
        "round": 1,
        "failures": 0,
        "doubt": False,
        "undoable": True,
        "kind": "action",
    } | more
    return StepView(idx=idx, name=name, agent="stock", action=name, state=state, plan=plan, **facts)  # type: ignore[arg-type]


def detail(*steps: StepView, **more: object) -> TaskDetail:
    """Return a task with these steps, made at second 1000."""
    facts = {
        "id": 1 << 40, "app": "shop", "workflow": "place_order", "key": None, "state": "processing", "goal": "forward",
        "submission": 1, "priority": 0, "cause": "", "failure_count": 0, "locked_by": 1, "epoch": 1, "correlation_id": None,
        "created": 1000.0, "ended": None, "complete_by": None,
    } | more  # fmt: skip
    return TaskDetail(TaskView(**facts), list(steps))  # type: ignore[arg-type]


def text(task_detail: TaskDetail, **more: object) -> list[str]:
    """Return a ladder as text, drawn 4.2 seconds after the task was made."""
    return [plain(line) for line in ladder(task_detail, now=1004.2, nodes={7: "web-7"}, **more)]  # type: ignore[arg-type]


def test_a_task_going_forward_shows_what_runs_where_and_for_how_long() -> None:
    """Each rung says state, attempt, failures, the process that has it and the seconds left."""
    lines = text(
        detail(
            step(0, "reserve", "done"),
            step(1, "charge", "running", attempt=2, failures=1, doing="do", taken_by=7, due=3.14),
            step(2, "pack", "running", doing="do", attempt=1),
            step(3, "email", "ready", waiting=True, due=5.0, attempt=2, failures=1),
            step(4, "ship", "waiting", attempt=0),
        )
    )
    assert lines == [
        "shop.place_order 0000010000000  processing  4.2s".replace("0000010000000", lines[0].split()[1]),
        "  ✓ reserve  stock  done",
        "  ▶ charge   stock  running  attempt 2, 1 unanswered, at web-7, 3.1s left",
        "  ▶ pack     stock  running  attempt 1, waiting for an agent",
        "  ○ email    stock  ready    attempt 2, 1 unanswered, again in 5s",
        "  · ship     stock  waiting",
    ]


def test_a_task_being_undone_shows_its_cause_and_unwinds() -> None:
    """The rungs that go backwards have marks and a colour of their own."""
    task_detail = detail(
        step(0, "reserve", "undoing", doing="undo", attempt=2, taken_by=9, due=-1.0),
        step(1, "charge", "undone"),
        step(2, "email", "kept", undoable=False),
        step(3, "pack", "in_doubt", doubt=True, doing="probe", attempt=3),
        step(4, "ship", "failed", error="no   such\naddress"),
        state="undoing",
        goal="undo",
        cause="no such address",
    )
    assert text(task_detail)[0].endswith("undoing  4.2s  no such address")
    assert text(task_detail)[1:] == [
        "  ↶ reserve  stock  undoing   undo, attempt 2, at node 9, overdue by 1s",
        "  ↩ charge   stock  undone",
        "  ■ email    stock  kept      nothing to undo",
        "  ? pack     stock  in_doubt  probe, attempt 3, waiting for an agent, an earlier try is unanswered",
        "  ✗ ship     stock  failed    no   such\\naddress",
    ]
    styles = {line[0][0].strip(): line[0][1] for line in ladder(task_detail, now=1004.2)[1:]}
    assert styles["↶"] == styles["↩"] == "magenta"
    assert "magenta" not in (styles["✗"], styles["?"], styles["■"])


def test_without_unicode_the_marks_are_plain_characters() -> None:
    """A terminal that cannot show arrows gets none."""
    task_detail = detail(step(0, "a", "done"), step(1, "b", "undoing"), step(2, "c", "running"))
    assert all(line.isascii() for line in text(task_detail, unicode=False))
    event = EventView(1, 2, 3.0, 1, [Move("a", "ready", "running", "")])
    assert plain(event_lines(event, unicode=False)[0]).isascii()


def test_an_ended_task_shows_how_long_it_took_and_its_submission() -> None:
    """The clock stands still at the end."""
    head = text(detail(state="processed", ended=1002.5, submission=3))[0]
    assert head.endswith("processed  2.5s  submission 3")


def test_the_items_of_an_each_follow_it_and_joining_steps_are_no_rungs() -> None:
    """Rows added later stand where they belong; merge and gather are left out."""
    each = StepPlan(1, kind="each", name="each", body=(StepPlan(-1, name="pick"),))
    gather = StepPlan(2, kind="gather", name="gather", of=1)
    steps = [
        step(0, "list", "done"),
        step(1, "each", "done", kind="each", plan=each),
        step(2, "gather", "waiting", kind="gather", plan=gather),
        step(3, "ship", "waiting"),
        step(4, "pick[0]", "done", plan=StepPlan(4, name="pick[0]", of=1, nth=0)),
        step(5, "wrap[0]", "running", plan=StepPlan(5, name="wrap[0]", of=1, nth=0)),
        step(6, "pick[1]", "done", plan=StepPlan(6, name="pick[1]", of=1, nth=1)),
        step(7, "wrap[1]", "running", plan=StepPlan(7, name="wrap[1]", of=1, nth=1)),
    ]
    names = [step_view.name for step_view in in_order(steps)]
    assert names == ["list", "each", "pick[0]", "wrap[0]", "pick[1]", "wrap[1]", "ship"]


def test_a_ladder_higher_than_the_terminal_folds_what_is_quiet() -> None:
    """Runs of done or waiting steps become one rung; what happens now stays."""
    steps = [step(n, f"item{n}", "done") for n in range(30)]
    steps += [
        step(30, "now", "running", doing="do"),
        step(31, "next", "waiting"),
        step(32, "last", "waiting"),
    ]
    lines = text(detail(*steps), height=10)
    assert len(lines) == 5
    assert lines[1].split() == ["✓", "item0", "to", "item29", "30", "steps", "done"]
    assert "now" in lines[2]
    assert len(text(detail(*steps), height=100)) == 34


def test_an_each_of_many_items_is_a_line_for_each_step_of_its_body_and_state() -> None:
    """However the states of its items alternate; of those that need somebody, the first have lines of their own."""
    spread = StepPlan(0, "each", "zones", "", "")
    states: list[StepState] = ["done", "running", "failed"]
    items = [
        step(
            1 + 2 * n + k, f"{name}[{n}]", states[n % 3], plan=StepPlan(1 + 2 * n + k, name=f"{name}[{n}]", of=0, nth=n, policy=POLICY),
            error="no such zone" if n % 3 == 2 else None,
        )
        for n in range(300)
        for k, name in enumerate(("make", "mark"))
    ]  # fmt: skip
    lines = text(detail(step(0, "zones", "done", kind="each", plan=spread), *items), height=60)
    assert len(lines) == 2 + 2 * (1 + 1 + 6)
    assert [line.split() for line in lines[2:4]] == [
        ["✓", "make[…]", "100", "steps", "done"],
        ["✓", "mark[…]", "100", "steps", "done"],
    ]
    assert ["✗", "make[…]", "and", "95", "steps", "failed", "no", "such", "zone"] in [
        line.split() for line in lines
    ]
    assert len(text(detail(step(0, "zones", "done", kind="each", plan=spread), *items))) == 602


def test_no_text_is_cut_before_it_is_known_how_much_room_there_is() -> None:
    """A pipe gets errors, causes, reasons and notes whole."""
    long = "the till said " * 30 + "no"
    lines = text(detail(step(0, "charge", "failed", error=long), state="undone", goal="undo", cause=long))
    assert lines[0].endswith(long)
    assert lines[1].endswith(long)
    event = EventView(1, 1, 1000.0, None, [Move("charge", "running", "failed", long)], long)
    assert all(plain(line).endswith(long) for line in event_lines(event))


def test_folding_keeps_short_runs_and_what_is_not_quiet() -> None:
    """Two of a kind are not worth a fold; failures never are."""
    rungs = [Rung("✗", f"f{n}", "stock", "failed", "") for n in range(5)] + [
        Rung("·", "w", "stock", "waiting", "")
    ] * 2
    assert fold(rungs) == rungs


def test_an_event_is_a_line_per_move_with_its_reason() -> None:
    """When, who, from, to, why; a note has a line of its own."""
    moves = [
        Move("charge", "running", "failed", "card refused"),
        Move("task", "processing", "undoing", "charge failed for good"),
    ]
    lines = [
        plain(line) for line in event_lines(EventView(1, 2, 0.25, 1, moves, "late done of charge"), width=8)
    ]
    assert [line.split("  ", 1)[1] for line in lines] == [
        "charge    running → failed  card refused",
        "task      processing → undoing  charge failed for good",
        "          late done of charge",
    ]
    assert all(line.split("  ")[0].endswith(".250") for line in lines)


def test_the_undo_order_is_the_reverse_of_dependence() -> None:
    """What followed is undone first; of independent steps the later one is named first; what never began is left out."""
    after = {"reserve": (), "charge": (0,), "book": (1,), "pack": (1,), "ship": (2, 3)}
    steps = [
        step(
            n, name, "done" if name != "ship" else "waiting",
            plan=StepPlan(n, name=name, agent="stock", action=name, after=before, policy=POLICY),
        )
        for n, (name, before) in enumerate(after.items())
    ]  # fmt: skip
    assert [preview.step.name for preview in undo_order(detail(*steps))] == [
        "pack",
        "book",
        "charge",
        "reserve",
    ]


def test_the_undo_order_takes_the_items_of_an_each_before_what_came_before_it() -> None:
    """Items have the highest numbers but stand before what followed the each."""
    each = StepPlan(1, kind="each", name="each", after=(0,), body=(StepPlan(-1, name="pick"),))
    gather = StepPlan(2, kind="gather", name="gather", of=1, after=(1,))
    item = StepPlan(4, name="pick[0]", agent="stock", action="pick", of=1, nth=0, after=(1,), policy=POLICY)
    ship = StepPlan(3, name="ship", agent="stock", action="ship", after=(2,), policy=POLICY)
    steps = [
        step(0, "list", "done"),
        step(1, "each", "done", kind="each", plan=each),
        step(2, "gather", "done", kind="gather", plan=gather),
        step(3, "ship", "done", plan=ship),
        step(4, "pick[0]", "in_doubt", plan=item),
    ]
    assert [preview.step.name for preview in undo_order(detail(*steps))] == ["ship", "pick[0]", "list"]


def test_the_preview_says_what_stays_and_what_is_uncertain() -> None:
    """Each step of the preview has its sentence."""

    def said(state: StepState, policy: Policy = POLICY, **more: object) -> str:
        return fate(step(0, "a", state, plan=StepPlan(0, name="a", policy=policy), **more)).text

    assert said("done") == "undone"
    assert "stays" in said("done", undoable=False)
    assert "no way back" in said("done", Policy(within=1.0, no_return=True))
    assert said("in_doubt").startswith("in doubt: undone")
    assert "must not be repeated" in said("in_doubt", Policy(within=1.0, never=True))
    assert "waits for" in said("running")
    assert said("undo_failed") == "its undo is tried again"


def test_a_note_is_a_line_before_what_its_commit_moved() -> None:
    notes = (Note(0, 1, "do", "12 of 40"), Note(0, 1, "do", {"copied": 40}, 3, late=True))
    event = EventView(1, 2, 1.0, 1, [Move("copy", "running", "done", "reply")], notes=notes)
    lines = [plain(line).split("  ", 1)[1] for line in event_lines(event, steps={0: "copy"}, width=8)]
    assert lines[:2] == ["copy      12 of 40", 'copy      {"copied":40}  3 before it skipped, came too late']
    assert lines[2].startswith("copy      running")


def test_the_answer_of_a_probe_is_a_line_of_its_own_although_nothing_moves() -> None:
    """Else the history of a step in doubt ends before its probe was asked; of several the last one counts."""
    events = [
        EventView(
            1, 2, 1.0, 1, [], attempts=(AttemptEnd(0, 2, "probe", "later", error="asked to wait 20s"),)
        ),
        EventView(
            2,
            2,
            2.0,
            1,
            [],
            attempts=(AttemptEnd(0, 3, "probe", "not_happened"), AttemptEnd(0, 1, "do", "done")),
        ),
        EventView(3, 2, 3.0, 1, [], attempts=(AttemptEnd(0, 3, "probe", "happened", late=True),)),
    ]
    lines = [plain(line) for event in events for line in event_lines(event, steps={0: "charge"}, width=8)]
    assert [line.split("  ", 1)[1] for line in lines] == [
        "charge    probe: not known yet: asked to wait 20s",
        "charge    probe: it did not happen",
    ]
    assert probe_answers(events, {0: "charge"}) == {"charge": (2.0, "it did not happen")}
    found = EventView(4, 2, 4.0, 1, [Move("charge", "in_doubt", "done", "probe")])
    assert probe_answers([*events, found], {0: "charge"}) == {"charge": (4.0, "it happened")}
    assert len(event_lines(found, steps={0: "charge"})) == 1, "the move says it"
