"""Each fault does to the caller and to the books what it says, and asking again under the same key mends it."""

import asyncio
import time

import pytest

from examples.orders.faults import KINDS, ROUGH, Faults, FaultsError, checked, parse
from examples.orders.remote import Busy, Declined, RemoteError, Unanswered
from examples.orders.world import Services, ServicesError
from tests.example.caller import Caller, entries, said
from tests.waiting import moment

CHARGE, REFUND = "payments/charge", "payments/refund"
PATIENCE = 2.0
"""Seconds for which a caller waits: long enough for what is answered at once, on a busy machine too."""


@pytest.mark.parametrize("way", ["ask", "ask_async"])
@pytest.mark.parametrize(
    ("fault", "error", "effects"),
    [
        ("fail", Unanswered, 0),
        ("busy", Busy, 0),
        ("refuse", Declined, 0),
        ("abort", Unanswered, 0),
        ("hang", Unanswered, 0),
        ("slow", Unanswered, 1),
        ("lie", Unanswered, 1),
    ],
)
def test_what_each_fault_says_and_does(
    services: Services, fault: str, error: type[RemoteError], effects: int, way: str
) -> None:
    services.turn({"payments": {fault: 1, "slow_seconds": 4.0}})
    with pytest.raises(error):
        getattr(Caller("k", left=PATIENCE), way)(CHARGE)
    assert services.quiet()
    assert len(entries(services.books)) == effects
    assert services.counts()[1] == {f"{CHARGE} {fault}": 1}
    services.turn({})
    assert said(Caller("k"), CHARGE) == ("Declined" if fault == "refuse" else "done")
    assert len(entries(services.books)) == (0 if fault == "refuse" else 1)


def test_every_fault_is_tested_above() -> None:
    marks = {mark.args[0]: mark.args[1] for mark in test_what_each_fault_says_and_does.pytestmark}  # type: ignore[attr-defined]
    assert {case[0] for case in marks["fault", "error", "effects"]} == set(KINDS)


def test_a_lie_may_hang_up_or_never_answer(services: Services) -> None:
    """Both forms occur among a few orders: one ends long before the caller's patience does, one with it."""
    services.turn({"payments": {"lie": 1}})
    waits = []
    for number in range(8):
        began = time.monotonic()
        with pytest.raises(Unanswered):
            Caller(f"k{number}", left=PATIENCE).ask(CHARGE, f"o-{number}")
        waits.append(time.monotonic() - began >= PATIENCE)
    assert set(waits) == {True, False}
    assert len(entries(services.books)) == 8


def test_a_slow_request_that_arrives_after_its_undo_changes_nothing(services: Services) -> None:
    """The message from the past: asked first, undone by the next attempt while it was on its way."""
    services.turn({CHARGE: {"slow": 1, "slow_seconds": 8.0}})
    assert said(Caller("k", token="1.1", scope="s", left=PATIENCE), CHARGE) == "Unanswered"
    assert services.under_way() == 1, "on its way"
    Caller("u", token="1.2", scope="s", undoes="k").ask(REFUND)
    assert services.quiet()
    assert entries(services.books) == []


def test_a_lie_is_undone_like_any_effect(services: Services) -> None:
    services.turn({CHARGE: {"lie": 1}})
    assert said(Caller("k", left=PATIENCE), CHARGE) == "Unanswered"
    Caller("u", undoes="k").ask(REFUND)
    assert [change for _, change, _, _ in entries(services.books)] == [1, -1]


def test_an_undo_meets_faults_too(services: Services) -> None:
    Caller("k").ask(CHARGE)
    services.turn({REFUND: {"fail": 1}})
    assert said(Caller("u", undoes="k"), REFUND) == "Unanswered"
    services.turn({})
    assert said(Caller("u", undoes="k"), REFUND) == "done"
    assert [change for _, change, _, _ in entries(services.books)] == [1, -1]


def test_hanging_requests_keep_nobody_else_waiting(services: Services) -> None:
    services.turn({"payments": {"hang": 1}})

    async def hang_many_and_reserve_one() -> None:
        hanging = [
            asyncio.create_task(asyncio.to_thread(said, Caller(f"k{n}", left=120.0), CHARGE))
            for n in range(4)
        ]
        while services.under_way() < 4:  # the services are another process
            await moment()
        assert said(Caller("hold"), "stock/reserve") == "done"
        assert not any(task.done() for task in hanging)
        services.kill()
        assert await asyncio.gather(*hanging) == ["Unanswered"] * 4

    asyncio.run(hang_many_and_reserve_one())


def test_wrong_dials_are_refused_and_the_old_ones_stay(services: Services) -> None:
    services.turn({"payments": {"fail": 1}})
    with pytest.raises(ServicesError, match="no place is called 'bank'"):
        services.turn({"bank": {"fail": 1}})
    assert said(Caller("k"), CHARGE) == "Unanswered"


def test_dials_survive_a_kill(services: Services) -> None:
    services.turn({"payments": {"fail": 1}})
    services.kill()
    services.start()
    assert said(Caller("k"), CHARGE) == "Unanswered"


@pytest.mark.parametrize(
    ("dials", "says"),
    [
        ([], "object of places"),
        ({"payments": 1}, "object of faults"),
        ({"payments": {"explode": 1}}, "no fault is called 'explode'"),
        ({"payments": {"fail": "often"}}, "a number from 0 up"),
        ({"payments": {"fail": -1}}, "a number from 0 up"),
        ({"payments": {"fail": True}}, "a number from 0 up"),
        ({"payments": {"fail": 0.7, "lie": 0.7}}, "add up to 1.4"),
    ],
)
def test_a_dial_that_makes_no_sense_is_named(dials: object, says: str) -> None:
    with pytest.raises(FaultsError, match=says):
        checked(dials)


def test_faults_are_read_from_json_or_by_name() -> None:
    assert parse("rough") == checked(dict(ROUGH))
    assert parse('{"*": {"fail": 1}}') == {"*": {"fail": 1.0}}
    assert parse("") == {}
    with pytest.raises(FaultsError, match="'rough' or a JSON object"):
        parse("stormy")


def test_the_most_exact_place_counts_alone() -> None:
    faults = Faults(0, {"*": {"fail": 1}, "payments": {"hang": 1}, REFUND: {"lie": 1}, "carrier": {}})
    places = ("stock/reserve", CHARGE, REFUND, "carrier/ship")
    assert [faults.draw(place, "o") for place in places] == ["fail", "hang", "lie", ""]


def test_shares_are_kept_and_the_same_seed_draws_the_same_faults_in_any_order() -> None:
    dials = {"payments": {"fail": 0.2, "lie": 0.1}}
    orders = [f"o-{number}" for number in range(2000)]
    forwards, backwards, other = Faults(1, dials), Faults(1, dials), Faults(2, dials)
    draws = {order: forwards.draw(CHARGE, order) for order in orders}
    assert draws == {order: backwards.draw(CHARGE, order) for order in reversed(orders)}
    assert draws != {order: other.draw(CHARGE, order) for order in orders}
    assert sum(fault == "fail" for fault in draws.values()) == pytest.approx(400, abs=80)
    assert sum(fault == "lie" for fault in draws.values()) == pytest.approx(200, abs=60)


def test_an_order_that_comes_again_draws_again() -> None:
    faults = Faults(1, {"payments": {"fail": 0.5}})
    assert {faults.draw(CHARGE, "o") for _ in range(50)} == {"fail", ""}


def test_an_undo_is_never_refused_for_business_reasons() -> None:
    faults = Faults(0, {"*": {"refuse": 1}})
    assert [faults.draw(place, "o") for place in (CHARGE, REFUND, "payments/find", "carrier/email")] == [
        "refuse",
        "",
        "",
        "",
    ]
