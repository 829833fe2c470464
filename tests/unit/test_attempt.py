"""The life of an attempt: its phases, which may follow which, and when its deadline is looked at."""

import asyncio
from typing import get_args

import pytest
from msgspec.structs import replace

from makegood.model.attempt import Attempt, Phase
from makegood.model.messages import Request


class Generous:
    """Gives every attempt what it asks for."""

    async def extend(self, attempt: Attempt, more: float) -> bool:
        """Agree."""
        attempt.deadline += more
        return True

    def note(self, attempt: Attempt, value: object) -> None:
        """Nothing notes anything here."""
        raise NotImplementedError


def attempt(phase: Phase = "waiting", within: float = 10.0) -> Attempt:
    """Return an attempt with its deadline at ``within``."""
    request = Request(1, 2, "do", 1, "shop", "bank", "charge", "charge", 1, within, b"{}")
    return Attempt(request, 1, within, 0.0, Generous(), phase=phase)


@pytest.mark.parametrize("phase", get_args(Phase))
def test_a_function_is_called_once_and_an_attempt_ends_once(phase: Phase) -> None:
    one = attempt(phase)
    if phase == "waiting":
        one.begin_call(cancellable=False)
        assert one.phase == "running"
    else:
        with pytest.raises(RuntimeError, match=f"{phase} cannot become running"):
            one.begin_call(cancellable=False)
        assert one.phase == phase
    if phase != "ended":
        one.end()
    assert one.phase == "ended"
    with pytest.raises(RuntimeError, match="ended cannot become ended"):
        one.end()


@pytest.mark.parametrize(
    ("phase", "then"),
    [
        ("waiting", "waiting"),
        ("running", "halted"),
        ("halted", "overdue"),
        ("overdue", "overdue"),
        ("ended", "ended"),
    ],
)
def test_a_passed_deadline_moves_an_attempt_by_one_phase(phase: Phase, then: Phase) -> None:
    one = attempt(phase)
    assert one.pass_deadline(1000.0) == ((phase, then) == ("halted", "overdue"))
    assert one.phase == then


def test_a_deadline_halts_and_makes_overdue_a_while_later_each_once() -> None:
    one = attempt()
    one.begin_call(cancellable=False)
    assert one.look_at(5.0) == 10.0
    assert not one.pass_deadline(10.0)
    assert (one.phase, one.look_at(10.0)) == ("halted", 11.0)
    assert not one.pass_deadline(10.9)
    assert one.phase == "halted"
    assert one.pass_deadline(11.0)
    assert (one.phase, one.look_at(11.0)) == ("overdue", None)
    assert not one.pass_deadline(12.0)


def test_a_long_attempt_is_given_a_share_of_its_time_to_return() -> None:
    one = attempt("halted", within=100.0)
    assert one.look_at(100.0) == 105.0
    assert not one.pass_deadline(104.0)
    assert one.pass_deadline(105.0)


def test_what_was_not_called_is_never_halted_and_looked_at_until_its_deadline() -> None:
    """It ends by itself once its delay is over. Whoever looked on would look without a rest."""
    one = attempt()
    assert one.look_at(9.0) == 10.0
    assert not one.pass_deadline(20.0)
    assert (one.phase, one.look_at(20.0)) == ("waiting", None)


@pytest.mark.parametrize("cancellable", [True, False])
async def test_only_a_coroutine_is_cancelled_at_its_deadline(*, cancellable: bool) -> None:
    one, never = attempt(), asyncio.Event()
    one.work = asyncio.ensure_future(_until(never))
    await asyncio.sleep(0)
    one.begin_call(cancellable=cancellable)
    one.pass_deadline(10.0)
    assert bool(one.work.cancelling()) is cancellable
    never.set()
    await asyncio.gather(one.work, return_exceptions=True)


@pytest.mark.parametrize("doing", ["do", "undo", "probe"])
async def test_only_an_action_hears_that_nobody_needs_it(doing: str) -> None:
    one = attempt("running")
    one.request = replace(one.request, doing=doing)
    one.hear(3.0)
    one.hear(4.0)
    assert (one.cancelled, one.cancelled_at) == ((True, 3.0) if doing == "do" else (False, None))


async def test_a_rest_ends_at_once_when_it_hears() -> None:
    one = attempt("running")
    resting = asyncio.ensure_future(one.rest(3600.0))
    await asyncio.sleep(0)
    one.hear(3.0)
    await resting
    await one.rest(3600.0)


@pytest.mark.parametrize("may_stop", [True, False])
async def test_only_a_function_that_is_declared_so_is_stopped_when_nobody_needs_it(*, may_stop: bool) -> None:
    """Its task has no other reason to end then; its deadline is one."""
    one, never = attempt("running"), asyncio.Event()
    one.work = asyncio.ensure_future(_until(never))
    await asyncio.sleep(0)
    one.may_stop, one.cancellable = may_stop, True
    one.hear(3.0)
    assert (bool(one.work.cancelling()), one.was_stopped, one.must_end) == (may_stop, may_stop, False)
    one.pass_deadline(10.0)
    assert one.must_end
    never.set()
    await asyncio.gather(one.work, return_exceptions=True)


async def test_an_extension_moves_the_deadline_and_never_the_phase() -> None:
    one = attempt("halted")
    assert await one.extend(5.0)
    assert (one.phase, one.look_at(10.0)) == ("halted", 16.0)


async def test_what_has_ended_lets_go_of_its_task() -> None:
    """The task's context knows the call, and the call knows the attempt."""
    task = asyncio.ensure_future(asyncio.sleep(0))
    one = replace(attempt("running"), work=task)
    await task
    one.end()
    assert (one.work, one.look_at(20.0)) == (None, None)


async def _until(event: asyncio.Event) -> None:
    await event.wait()
