"""I10 and tasks that hold on failure: nothing of them is taken up once a step has failed, except to undo them."""

from collections.abc import Callable

import pytest

from makegood.testing.checker import Final
from makegood.testing.checker.report import Violation
from proofs.storms.rules import check
from tests.simulation.handmade_histories import Story, changed, picks

Leave = Callable[[Story, str], None]

TAKEN = "charge was taken up at 1.300 s by a1, although the task is held: reserve has failed"


def begun() -> Story:
    """Both steps of a task are called, the first is refused, and the second falls silent."""
    story = Story()
    story.submit(1)
    story.commit(
        1, ("task", "pending", "processing"), (0, "waiting", "ready"), (0, "ready", "running"), (1, "waiting", "ready"),
        (1, "ready", "running"), claim=1, requests=[(0, "do", 1), (1, "do", 1)],
    )  # fmt: skip
    story.ask(1, 0, 1, net=None, reply="refused")
    story.ask(1, 1, 1, net=None)
    return story


def probed(story: Story) -> None:
    """The first step fails, and the second one's silence is judged: a probe is asked for."""
    story.commit(1, (0, "running", "failed"), acceptance=(0, "do", 1, "refused"))
    story.note("judged", "v1", 1, idx=1, attempt=1, failures=1, epoch=1)
    story.commit(1, (1, "running", "in_doubt"), requests=[(1, "probe", 2)])


def given_back(story: Story, state: str) -> None:
    """The Scheduler stops, in good order."""
    story.commit(1, ("task", state, "pending"))


def released(story: Story, _state: str) -> None:
    """The Scheduler is dead: a Supervisor frees the task."""
    story.note("released", "v1", 1, epoch=1, why="dead")


def wrong(story: Story) -> list[Violation]:
    """Return what I10 says when an agent now takes the probe."""
    story.now = 1.2
    story.note("taken", "a1", 1, idx=1, doing="probe", attempt=2, by="a1", within=3.0)
    return check(changed(story.history, picks("submitted"), on_failure="hold"), Final()).of("I10")


@pytest.mark.parametrize("leave", [None, given_back, released])
def test_nothing_of_a_held_task_is_taken_up(leave: Leave | None) -> None:
    story = begun()
    probed(story)
    if leave is not None:
        leave(story, "processing")
    assert [violation.text for violation in wrong(story)] == [TAKEN]


@pytest.mark.parametrize("leave", [None, given_back, released])
def test_a_task_that_is_being_undone_has_its_doubts_probed_also_between_two_schedulers(
    leave: Leave | None,
) -> None:
    """What its last Scheduler has asked for stays in the store, and an agent may be there before the next Scheduler."""
    story = begun()
    story.commit(1, ("task", "processing", "undoing"), act="cancel")
    probed(story)
    if leave is not None:
        leave(story, "undoing")
    assert wrong(story) == []


def test_a_task_that_was_undone_in_vain_goes_forward_again_when_it_is_resubmitted() -> None:
    story = begun()
    story.commit(1, ("task", "processing", "undoing"), act="cancel")
    probed(story)
    story.commit(1, ("task", "undoing", "error"), alert="undo_incomplete", end="error")
    story.commit(1, ("task", "error", "pending"), act="resubmit")
    assert [violation.text for violation in wrong(story)] == [TAKEN]
