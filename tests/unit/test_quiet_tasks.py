"""Which tasks rest: those that wait, and have waited, for agents that answer slowly, while there is no room."""

import math

from msgspec.structs import replace

from makegood import saga
from makegood.model.messages import Request, TaskMessage
from makegood.scheduler.quiet_tasks import PERIOD, QuietTasks
from tests.unit.saga_case import action
from tests.unit.scheduler_parts import Parts

HOLD = 10


class Quiet:
    """A Scheduler that may hold ten tasks, and the looks at those that it holds."""

    def __init__(self, count: int) -> None:
        self.parts = Parts()
        self.tasks = self.parts.tasks
        self.quiet = QuietTasks(self.parts.claims, self.parts.pool, HOLD)
        self.now = self.tasks.clock.monotonic()
        for task in range(count):
            self.parts.hold(task, action(0), action(1, 0))
            self.decide(task, TaskMessage("claim"))

    def decide(self, task: int, *messages: TaskMessage) -> None:
        """Decide and apply what is committed."""
        held_task = self.tasks.in_memory[task]
        saga.apply(held_task, saga.decide(held_task, messages))

    def answer(self, task: int) -> None:
        """Let an agent answer a task's first step."""
        self.decide(task, TaskMessage("done", 0, "do", 1, value=b"1"))

    def look(self, times: int = 1) -> set[int]:
        """Look so often; returns the tasks that were told to rest."""
        for _ in range(times):
            self.now += PERIOD
            self.quiet.look(self.now, [])
        return {task for task, messages in self.tasks.messages.items() if messages == [TaskMessage("rest")]}

    def sleep(self) -> None:
        """Forget the tasks that were told to rest, as after their commit."""
        for task in [*self.tasks.messages]:
            self.tasks.forget(task)


def test_nothing_rests_while_there_is_room() -> None:
    quiet = Quiet(8)
    assert (quiet.quiet.next_look, quiet.look(20)) == (None, set())


def test_after_a_second_of_silence_so_many_rest_that_half_is_free() -> None:
    quiet = Quiet(10)
    assert quiet.look(2) == set()
    assert len(quiet.look()) == 5
    quiet.sleep()
    assert (len(quiet.tasks.in_memory), quiet.quiet.next_look) == (5, None)


def test_those_that_come_in_their_place_do_not_make_the_others_seem_answered() -> None:
    quiet = Quiet(10)
    assert len(quiet.look(3)) == 5
    quiet.sleep()
    for task in range(10, 15):
        quiet.parts.hold(task, action(0))
        quiet.decide(task, TaskMessage("claim"))
    assert len(quiet.look()) == 5


def test_tasks_of_an_agent_that_answers_stay() -> None:
    """Two of ten are answered from one look to the next: the others are served in a few seconds."""
    quiet = Quiet(10)
    for answers in ((), (), (0, 1), (2, 3), (4, 5)):
        for task in answers:
            quiet.answer(task)
        assert quiet.look() == set()


def test_tasks_of_another_agent_rest_beside_those_of_one_that_answers() -> None:
    quiet = Quiet(0)
    for task in range(10):
        quiet.parts.hold(task, replace(action(0), agent="bank" if task < 5 else "desk"), action(1, 0))
        quiet.decide(task, TaskMessage("claim"))
    quiet.look(2)
    quiet.answer(5)
    assert quiet.look() == {0, 1, 2, 3, 4}


def test_an_attempt_in_this_process_keeps_its_task() -> None:
    quiet = Quiet(10)
    quiet.parts.pool.handed += [
        Request(task, 0, "do", 1, "shop", "a", "a", "a", 1, 1.0, b"{}") for task in range(7)
    ]
    assert quiet.look(5) == {7, 8, 9}


def test_what_is_being_committed_and_what_has_a_message_stays() -> None:
    quiet = Quiet(10)
    quiet.tasks.hear(0, TaskMessage("task_expired"))
    for _ in range(4):
        quiet.now += PERIOD
        quiet.quiet.look(quiet.now, [set(range(1, 8))])
    assert {task for task, (message,) in quiet.tasks.messages.items() if message.kind == "rest"} == {8, 9}


def test_a_timer_that_fires_soon_keeps_its_task() -> None:
    quiet = Quiet(10)
    for task in range(9):
        quiet.tasks.timers.set(task, 1, quiet.now + 1.9)
    assert quiet.look(3) == {9}
    assert quiet.quiet.next_look is not None


def test_tasks_that_move_cost_a_comparison() -> None:
    """Only a task that stood still from one look to the next is looked at."""
    quiet = Quiet(10)
    scans: list[int] = []
    waits_for = quiet.quiet._waits_for
    quiet.quiet._waits_for = lambda task: scans.append(task) or waits_for(task)  # type: ignore[method-assign, func-returns-value]
    quiet.look()
    for task in range(9):
        quiet.answer(task)
    quiet.look()
    assert scans == [9]


def test_heavy_tasks_rest_as_many_ones_do() -> None:
    quiet = Quiet(4)
    for task in range(4):
        quiet.tasks.weights.put(task, quiet.tasks.weights.most // 4)
    assert len(quiet.look(3)) == 2


def test_nothing_rests_once_the_scheduler_ends() -> None:
    quiet = Quiet(10)
    quiet.parts.claims.open = False
    assert (quiet.look(5), quiet.quiet.next_look) == (set(), None)


# -- the rule ------------------------------------------------------------------------------------------------


def rested(
    quiet: Quiet, *messages: TaskMessage, due: saga.Due = saga.NOTHING_DUE
) -> tuple[str, float | None]:
    """Return the state and the moment after messages for the first task."""
    decision = saga.decide(quiet.tasks.in_memory[0], messages, saga.At(linger=0.5), due)
    return decision.task.state, decision.wakes


def test_it_sleeps_until_a_message_comes_or_its_timer_fires() -> None:
    quiet = Quiet(1)
    assert rested(quiet, TaskMessage("rest")) == ("sleeping", math.inf)
    decision = saga.decide(quiet.tasks.in_memory[0], [TaskMessage("rest")], saga.At(linger=0.5))
    assert decision.release
    assert decision.withdraw == []
    assert decision.moves[-1][:] == (
        "task",
        "processing",
        "sleeping",
        "let go to make room, its requests wait",
    )


def test_it_does_not_rest_with_another_message() -> None:
    """It is not quiet any more: what follows may be handed over in this process."""
    quiet = Quiet(1)
    answer = TaskMessage("done", 0, "do", 1, value=b"1")
    assert rested(quiet, TaskMessage("rest"), answer) == ("processing", None)
    assert rested(quiet, answer, TaskMessage("rest")) == ("processing", None)
