"""What ``mg.sleep``, ``mg.sleep_until`` and ``mg.fail`` record, and what they refuse."""

# mypy: disable-error-code="func-returns-value"

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from makegood.declare import call
from makegood.declare.outcomes import NOTHING
from makegood.errors import DefinitionError, MakegoodError, PromiseError
from makegood.model.plan import Ref, StepPlan, Template
from makegood.workflow.app import App
from makegood.workflow.verbs import branches, each, fail, parallel, sleep, sleep_until, when

shop = App("shop")
desk = shop.agent("desk")
BERLIN = ZoneInfo("Europe/Berlin")


@desk.action(complete_within="20s", undo=NOTHING)
def book(trip: str) -> None: ...


@desk.action(complete_within="20s", undo=NOTHING)
def pause(trip: str) -> timedelta:
    return timedelta(days=1)


@desk.action(complete_within="20s", undo=NOTHING)
def departs(trip: str) -> datetime:
    return datetime.now(UTC)


@desk.action(complete_within="20s", undo=NOTHING)
def answer(trip: str) -> str:
    return trip


@desk.action(complete_within="20s", undo=NOTHING)
def parts(trip: str) -> list[float]:
    return [1.0]


def planned(fn: Callable[..., Any], *inputs: Any, **options: Any) -> tuple[StepPlan, ...]:
    """Return the steps of a workflow function's plan."""
    return shop.workflow(name=f"w{len(shop.workflows)}", **options)(fn).plan(*inputs).steps


def known(value: str) -> Template:
    """Return the template of a value that is known."""
    return Template((value,))


# -- what is recorded ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "args"), [("3d", "259200.0"), (2.5, "2.5"), (timedelta(hours=1), "3600.0"), (0, "0.0")]
)
def test_a_sleep_is_a_step_between_the_others(length: Any, args: str) -> None:
    def trip(city: str) -> None:
        book(city)
        sleep(length)
        book(city)

    steps = planned(trip, "Rome")
    assert [(s.name, s.kind, s.after) for s in steps] == [
        ("book", "action", ()), ("sleep", "sleep", (0,)), ("book-2", "action", (1,)),
    ]  # fmt: skip
    assert (steps[1].args, steps[1].action, steps[1].policy) == (known(args), "", None)


def test_a_moment_keeps_its_zone_and_fold() -> None:
    night = datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=BERLIN)
    fixed = datetime(2026, 12, 24, 8, tzinfo=UTC)

    def trip(_city: str) -> None:
        sleep_until(night)
        sleep_until(fixed)

    first, second = planned(trip, "Rome")
    assert (first.name, first.action, first.args) == (
        "sleep", "until", known('"2026-10-25T02:30:00+01:00[Europe/Berlin]~"'),
    )  # fmt: skip
    assert (second.name, second.args) == ("sleep-2", known('"2026-12-24T08:00:00+00:00"'))


def test_results_and_inputs_are_refs() -> None:
    def trip(city: str, length: timedelta, at: datetime) -> None:
        sleep(pause(city))
        sleep_until(departs(city))
        sleep(length)
        sleep_until(at)

    steps = planned(trip, "Rome", timedelta(days=2), datetime(2027, 1, 1, tzinfo=UTC))
    refs = [step.args and step.args.refs for step in steps if step.kind == "sleep"]
    assert refs == [(Ref("step", 0),), (Ref("step", 2),), (Ref("value", 1),), (Ref("value", 2),)]


def test_an_input_with_a_zone_is_written_with_it() -> None:
    """The JSON of the input has its offset alone."""

    def trip(at: datetime) -> None:
        sleep_until(at)

    (step,) = planned(trip, datetime(2027, 7, 1, 9, tzinfo=BERLIN))
    assert step.args == known('"2027-07-01T09:00:00+02:00[Europe/Berlin]"')


def test_sleeps_beside_other_steps() -> None:
    def trip(city: str) -> None:
        branches(lambda: sleep("1d"), lambda: book(city))
        parallel(sleep("1d"), book(city))
        when(answer(city) == "yes", then=lambda: sleep("1d"), otherwise=lambda: fail("no"))
        each(parts(city), sleep)

    steps = {step.name: step for step in planned(trip, "Rome")}
    assert (steps["sleep"].after, steps["book"].after) == ((), ())
    assert (steps["sleep-2"].after, steps["book-2"].after) == ((0, 1), (0, 1))
    assert steps["sleep-3"].guards == ((steps["when"].idx, True),)
    assert steps["fail"].guards == ((steps["when"].idx, False),)
    (item,) = steps["each"].body
    assert item.args == Template(("", ""), (Ref("item", steps["each"].idx),))


def test_a_fail_has_the_type_of_the_other_side() -> None:
    def trip(city: str) -> str:
        def side() -> str:
            return when(answer(city) == "yes", then=lambda: answer(city), otherwise=lambda: fail("no"))

        return answer(side())

    steps = planned(trip, "Rome")
    assert next(step.args for step in steps if step.kind == "fail") == known('"no"')


def test_a_side_that_is_taken_now_may_fail_too() -> None:
    def trip(city: str) -> None:
        when(city == "Rome", then=lambda: fail("not again"))

    assert [step.kind for step in planned(trip, "Rome")] == ["fail"]
    assert planned(trip, "Oslo") == ()


def test_plans_with_sleeps_of_different_inputs_share_their_steps() -> None:
    def trip(length: timedelta) -> None:
        sleep(length)

    flow = shop.workflow(trip)
    assert flow.plan(timedelta(1)).steps is flow.plan(timedelta(2)).steps


def test_a_plan_is_printed_with_its_sleeps() -> None:
    def trip(city: str) -> None:
        sleep("3d")
        sleep_until(datetime(2026, 12, 24, 9, tzinfo=BERLIN))
        sleep(pause(city))
        when(answer(city) == "yes", then=lambda: fail("the boss said no"))

    text = str(shop.workflow(name="printed")(trip).plan("Rome"))
    for words in (
        "(sleep 3d)", "(sleep until 2026-12-24T09:00:00+01:00[Europe/Berlin])", "(sleep)", "(fail: the boss said no)",
    ):  # fmt: skip
        assert words in text


# -- what is refused -----------------------------------------------------------------------------------------


def until(moment: Any) -> Callable[[str], None]:
    """Return a workflow function that sleeps until a moment."""
    return lambda _city: sleep_until(moment)


def for_(length: Any) -> Callable[[str], None]:
    """Return a workflow function that sleeps."""
    return lambda _city: sleep(length)


@pytest.mark.parametrize(
    ("fn", "error", "words"),
    [
        (until(datetime(2027, 1, 1)), DefinitionError, "has no time zone: write datetime(..., tzinfo="),  # noqa: DTZ001
        (until("tomorrow"), DefinitionError, "is not a moment"),
        (for_("-1d"), DefinitionError, "length"),
        (for_(-1), DefinitionError, "length"),
        (for_("soon"), DefinitionError, "write seconds"),
        (for_("4000d"), DefinitionError, "longer than ten years, which is the most"),
        (for_(None), DefinitionError, "length"),
        (lambda city: sleep(answer(city)), PromiseError, "will be str: return a timedelta, or seconds"),
        (lambda city: sleep_until(pause(city)), PromiseError, "return a datetime with a time zone"),  # type: ignore[arg-type]
        (lambda _city: fail("no"), DefinitionError, "fails every task: put it in a side of mg.when"),
        (lambda city: each(parts(city), lambda _part: fail("no")), DefinitionError, "fails every task"),
        (
            lambda city: when(answer(city) == "yes", then=lambda: fail("")),
            DefinitionError,
            "does not say why",
        ),
    ],
)
def test_what_cannot_be_waited_for_is_refused_with_the_remedy(
    fn: Any, error: type[MakegoodError], words: str
) -> None:
    with pytest.raises(error) as refusal:
        planned(fn, "Rome")
    assert words in str(refusal.value)


def test_a_deadline_that_ends_a_sleep_is_refused() -> None:
    words = (
        r'sleep sleeps 3d, and complete_within="2h" ends it before: raise complete_within, or leave it out'
    )
    with pytest.raises(DefinitionError, match=words):
        planned(for_("3d"), "Rome", complete_within="2h")
    assert planned(for_("3d"), "Rome", complete_within="4d")

    def trip(length: timedelta) -> None:
        sleep(length)

    with pytest.raises(DefinitionError, match="sleep sleeps 2d"):
        planned(trip, timedelta(days=2), complete_within="2d")


def test_a_sleep_that_not_every_task_comes_to_may_be_longer_than_the_deadline() -> None:
    def trip(city: str) -> None:
        when(answer(city) == "yes", then=lambda: sleep("3d"))
        sleep(pause(city))

    assert planned(trip, "Rome", complete_within="2h")


@pytest.mark.parametrize("nap", [time.sleep, asyncio.sleep])
def test_a_function_that_makes_its_submitter_wait_is_refused(nap: Any) -> None:
    def by_time(_city: str) -> None:
        time.sleep(0)

    def by_loop(_city: str) -> None:
        asyncio.run(asyncio.sleep(0))

    fn = by_time if nap is time.sleep else by_loop
    words = rf"test_recorded_waits\.py, line {fn.__code__.co_firstlineno + 1}\): {nap.__module__.partition('.')[0]}\.sleep runs at "
    with pytest.raises(DefinitionError, match=words + r"submission .* write mg\.sleep"):
        shop.workflow(name="naps")(fn)


@pytest.mark.parametrize(("verb", "value"), [(sleep, "3d"), (sleep_until, datetime.now(UTC)), (fail, "no")])
def test_outside_of_a_plan_they_are_refused(verb: Callable[[Any], Any], value: Any) -> None:
    with pytest.raises(DefinitionError, match=r"belongs in a @app\.workflow function"):
        verb(value)


def test_in_an_action_the_remedy_is_to_come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("makegood.workflow.verbs.known_call", object)
    with pytest.raises(DefinitionError, match=r'holds a slot while it waits: raise mg\.Later\("3d"\)'):
        sleep("3d")
    assert call.known_call() is None
    assert planned(for_("3d"), "Rome"), "an action may submit a task that sleeps"
