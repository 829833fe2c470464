"""The attempts of a task, put together from its history: what was asked when, who took it, and how it ended."""

from makegood.console.attempt_lines import _words
from makegood.console.attempts import Course, course
from makegood.console.pages.task import _facts
from makegood.console.rungs import rungs
from makegood.console.timeline import TimeRow, timeline
from makegood.console.verdict import verdict_of
from makegood.model.attempt_end import AttemptEnd
from makegood.model.plan import StepPlan
from makegood.model.policy import Policy
from makegood.model.states import Move
from makegood.store.views import EventView, StepView, TaskDetail, TaskView
from tests.console.recorded_tasks import recorded

BEGIN = (Move("task", "pending", "processing", "claimed"), Move("charge", "ready", "running", "dispatched"))


def event(
    at: float, *moves: Move, ends: tuple[AttemptEnd, ...] = (), node: int | None = 1, note: str = ""
) -> EventView:
    """Return an event."""
    return EventView(int(at * 10), 7, at, node, list(moves), note, ends)


def step(**more: object) -> StepView:
    """Return the step that all is about."""
    plan = StepPlan(0, "action", "charge", policy=Policy(within=3.0))
    values: dict[str, object] = {
        "idx": 0, "kind": "action", "name": "charge", "agent": "payments", "action": "charge", "state": "done", "attempt": 1,
        "round": 1, "failures": 0, "doubt": False, "undoable": True, "plan": plan,
    }  # fmt: skip
    return StepView(**(values | more))  # type: ignore[arg-type]


def task(*steps: StepView, **more: object) -> TaskDetail:
    """Return a task with these steps."""
    values: dict[str, object] = {
        "id": 7, "app": "shop", "workflow": "sell", "key": None, "state": "processing", "goal": "forward", "submission": 1,
        "priority": 0, "cause": "", "failure_count": 0, "locked_by": 1, "epoch": 1, "correlation_id": None, "created": 0.0,
        "ended": None, "complete_by": None,
    }  # fmt: skip
    return TaskDetail(TaskView(**(values | more)), list(steps))  # type: ignore[arg-type]


def ends(task_course: Course) -> list[tuple[str, int | None, str]]:
    """Return what was asked, its number, and how it ended."""
    return [(attempt.doing, attempt.number, attempt.end) for attempt in task_course.attempts]


def test_an_attempt_waited_until_a_process_took_it() -> None:
    """The record says how long it ran there; what is before was the queue."""
    success = AttemptEnd(0, 1, "do", "done", node=5, took=1.5)
    task_course = course(
        task(step()),
        [event(1.0, *BEGIN), event(4.0, Move("charge", "running", "done", "reply"), ends=(success,))],
        9.0,
    )
    (attempt,) = task_course.attempts
    assert (attempt.asked, attempt.taken, attempt.ended, attempt.node) == (1.0, 2.5, 4.0, 5)
    chart = timeline(
        task(step()),
        task_course,
        [TimeRow(name="charge", steps=[0])],
        now=9.0,
        nodes={1: "vm-1"},
        submission=1,
    )
    assert chart is not None
    assert chart.bars[-1].taken is not None


def test_an_attempt_without_a_record_was_answered_in_memory() -> None:
    """By the process that wrote the history, at once."""
    moves = Move("charge", "running", "done", "reply")
    (now,) = course(task(step()), [event(1.0, *BEGIN), event(2.0, moves)], 9.0).attempts
    assert (now.taken, now.node) == (1.0, 1)
    assert now.end == "done"


def test_silence_is_judged_at_the_deadline_and_a_late_reply_is_marked() -> None:
    """The deadline is drawn where it was, the reply where it came."""
    silent = AttemptEnd(0, 1, "do", "expired", node=5, took=4.0, due=5.5)
    task_course = course(
        task(step(state="in_doubt", attempt=1, doubt=True)),
        [
            event(1.0, *BEGIN),
            event(6.0, Move("charge", "running", "in_doubt", "expired"), ends=(silent,)),
            event(7.0, node=5, ends=(AttemptEnd(0, 1, "do", "done", late=True),)),
        ],
        9.0,
    )
    (attempt,) = task_course.attempts
    assert (attempt.end, attempt.late, attempt.late_kind) == ("no answer", 7.0, "done")
    assert (attempt.taken, attempt.due) == (1.5, 5.5)


def test_a_probe_is_an_attempt_although_nothing_moves() -> None:
    """It stands between the two attempts of the action."""
    task_course = course(
        task(step(state="running", attempt=3, doing="do", taken_by=5, due=2.0)),
        [
            event(1.0, *BEGIN),
            event(
                2.0,
                Move("charge", "running", "in_doubt", "gave_up"),
                ends=(AttemptEnd(0, 1, "do", "gave_up"),),
            ),
            event(2.5, ends=(AttemptEnd(0, 2, "probe", "not_happened", took=0.2),)),
            event(5.0, Move("charge", "in_doubt", "running", "retry")),
        ],
        6.0,
    )
    assert ends(task_course) == [("do", 1, "no answer"), ("probe", 2, "not happened"), ("do", 3, "running")]
    assert task_course.attempts[-1].due == 8.0
    assert task_course.attempts[-1].node == 5


def test_an_attempt_that_heard_of_a_cancel_says_how_soon_it_ended() -> None:
    why, error = "heard the cancel, ended after 0.4 s", "nobody needs step charge any more"
    doubtful = step(state="in_doubt", attempt=1, error=error)
    task_course = course(
        task(doubtful),
        [
            event(1.0, *BEGIN),
            event(
                2.0,
                Move("charge", "running", "in_doubt", "gave_up", "", why),
                ends=(AttemptEnd(0, 1, "do", "gave_up", error=error),),
            ),
        ],
        6.0,
    )
    (attempt,) = task_course.attempts
    assert _words(attempt, doubtful) == f"{error}; {why}"


def test_a_step_in_doubt_says_what_its_probe_answered_last_and_when() -> None:
    doubtful = task(step(state="in_doubt", attempt=3, error="OSError: reset"))
    task_course = course(
        doubtful,
        [
            event(1.0, *BEGIN),
            event(
                2.0,
                Move("charge", "running", "in_doubt", "gave_up"),
                ends=(AttemptEnd(0, 1, "do", "gave_up"),),
            ),
            event(2.5, ends=(AttemptEnd(0, 2, "probe", "later", error="asked to wait 2s"),)),
            event(5.0, ends=(AttemptEnd(0, 3, "probe", "not_happened"),)),
        ],
        6.0,
    )
    (each_rung,) = rungs(doubtful, task_course, now=6.0, nodes={})
    assert each_rung.note == "OSError: reset; its probe, at 00:00:05: it did not happen"


def test_the_page_of_a_task_names_its_number_as_the_command_line_does() -> None:
    """It is another number than a step's failures: of all steps, both directions and lost Schedulers."""
    detail = task(step(failures=1), failure_count=3)
    facts = _facts(detail, {}, course(detail, [event(1.0, *BEGIN)], 2.0), 2.0)
    assert ("unanswered", "3") in facts
    assert "failures" not in dict(facts)


def test_an_undo_that_is_asked_again_is_a_new_attempt() -> None:
    """What is planned comes last; the way forward is remembered."""
    failure = AttemptEnd(0, 2, "undo", "gave_up")
    task_course = course(
        task(
            step(state="undoing", attempt=2, failures=1, waiting=True, due=5.0), state="undoing", goal="undo"
        ),
        [
            event(1.0, *BEGIN),
            event(
                2.0,
                Move("charge", "running", "done", "reply"),
                Move("task", "processing", "undoing", "cancelled"),
                Move("charge", "done", "undoing", "undo"),
            ),
            event(3.0, ends=(failure,)),
        ],
        4.0,
    )
    assert ends(task_course) == [("do", 1, "done"), ("undo", 2, "no answer"), ("undo", None, "planned")]
    assert task_course.attempts[-1].asked == 9.0
    assert task_course.forward == {"charge": ("done", "")}


def test_a_request_that_was_withdrawn_is_no_attempt_to_draw() -> None:
    """It counts, but nobody took it."""
    task_course = course(
        task(step(state="waiting")),
        [event(1.0, *BEGIN), event(2.0, Move("charge", "running", "waiting", "withdrawn"))],
        9.0,
    )
    assert ends(task_course) == [("do", 1, "withdrawn")]
    chart = timeline(
        task(step(state="waiting")),
        task_course,
        [TimeRow(name="charge", steps=[0])],
        now=9.0,
        nodes={},
        submission=1,
    )
    assert chart is not None
    assert [bar.look for bar in chart.bars] == ["held"]


def test_between_two_schedulers_nobody_held_the_task() -> None:
    """Epochs count back from the present one."""
    detail = task(step(state="running"), epoch=5)
    task_course = course(
        detail,
        [
            event(1.0, *BEGIN),
            event(6.0, Move("task", "processing", "pending", "scheduler_dead"), node=None),
            event(8.0, Move("task", "pending", "processing", "claimed"), node=2),
        ],
        9.0,
    )
    assert [(h.node, h.start, h.end, h.epoch) for h in task_course.holdings] == [
        (1, 1.0, 6.0, 4), (None, 6.0, 8.0, 0), (2, 8.0, None, 5),
    ]  # fmt: skip
    chart = timeline(detail, task_course, [], now=9.0, nodes={1: "vm-1", 2: "vm-2"}, submission=1)
    assert chart is not None
    assert [bar.look for bar in chart.bars] == ["held", "nobody", "held"]


def test_an_undo_that_got_no_answer_was_not_refused() -> None:
    """What the page says of a stuck undo follows from how its last attempt ended."""
    recording = recorded("stuck")
    task_course = course(recording.detail, recording.events, recording.now)
    last = [attempt for attempt in task_course.attempts if attempt.end == "undo failed"][-1]
    for kind, reason in (
        ("permanent", "The service refused for good: “"),
        ("gave_up", "makegood gave up after 2 attempts; the last one ended with “"),
    ):
        last.kind = kind
        assert verdict_of(recording.detail, task_course).more.startswith(reason)


def test_an_extension_moves_the_deadline_and_not_the_moment_of_the_taking() -> None:
    """Which the store knows: the deadline less complete_within was later with each extension."""
    for due in (2.0, 20.0, 200.0):
        running = step(state="running", doing="do", taken_by=5, taken_at=1.5, due=due)
        (attempt,) = course(task(running), [event(1.0, *BEGIN)], 9.0).attempts
        assert (attempt.asked, attempt.taken, attempt.due) == (1.0, 1.5, 9.0 + due)
