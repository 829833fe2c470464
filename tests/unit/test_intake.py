"""Whether a process takes requests: open, alone with one that was isolated, or closed for good."""

import pytest

from makegood.agent.intake import Intake
from makegood.agent.slots import Slots
from makegood.model.messages import Request


def request(*, isolate: bool) -> Request:
    """Return a request that runs alone beside a Scheduler, or any other."""
    return Request(1, 2, "do", 1, "shop", "bank", "charge", "charge", 1, 10.0, b"{}", isolate=isolate)


@pytest.mark.parametrize("isolate", [True, False])
@pytest.mark.parametrize("beside", [True, False])
def test_only_an_isolated_request_beside_a_scheduler_runs_alone(*, isolate: bool, beside: bool) -> None:
    intake = Intake(beside_scheduler=beside)
    intake.begins(request(isolate=isolate))
    assert intake.open is not (isolate and beside)
    intake.idle()
    assert intake.open


def test_what_drains_takes_nothing_more_whatever_ends_or_begins() -> None:
    intake = Intake(beside_scheduler=True)
    intake.begins(request(isolate=True))
    intake.close()
    intake.idle()
    assert intake.mode == "closed"
    intake.begins(request(isolate=True))
    assert intake.mode == "closed"


@pytest.mark.parametrize(("backlog", "looks"), [(True, True), (False, False)])
def test_a_free_slot_is_a_reason_to_look_only_where_something_may_wait(*, backlog: bool, looks: bool) -> None:
    intake, slots = Intake(beside_scheduler=True), Slots("shop/bank", {}, 2, backlog=backlog)
    intake.note_free_slot(slots)
    assert intake.wake.is_set() is looks
    intake.look(slots)
    assert slots.needs_look
    assert intake.wake.is_set()
