"""The remote services keep their word over real HTTP: keys, tokens, tombstones, probes, and real books."""

import http.client
import json
import os
import signal
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from multiprocessing.connection import wait
from urllib.parse import urlsplit

import pytest

from examples.orders.remote import AlreadyUndone, Declined, Unanswered
from examples.orders.world import Services, ServicesError
from tests.example.caller import Caller, entries, said

CHARGE, REFUND = "payments/charge", "payments/refund"


def status(services: Services, path: str, headers: dict[str, str], body: str = "{}") -> tuple[int, str]:
    """A raw request's status and the message or code in the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(services.url).port or 0, timeout=60)
    with closing(connection):
        connection.request("POST", path, body, headers)
        response = connection.getresponse()
        answer = json.loads(response.read())
        return response.status, answer.get("message", answer.get("code", ""))


def test_the_same_key_gets_the_same_answer_and_one_effect(services: Services) -> None:
    first = Caller("k").ask(CHARGE)
    assert Caller("k").ask(CHARGE) == first
    assert Caller("other").ask(CHARGE, "o-2") != first
    assert entries(services.books) == [("charge", 1, "k", "o-1"), ("charge", 1, "other", "o-2")]


def test_a_key_that_comes_back_with_another_order_is_refused(services: Services) -> None:
    Caller("k").ask(CHARGE, "o-1")
    with pytest.raises(Declined, match="used before to charge for order o-1"):
        Caller("k").ask(CHARGE, "o-2")
    assert len(entries(services.books)) == 1


def test_a_refusal_is_remembered_under_its_key(services: Services) -> None:
    services.turn({"payments": {"refuse": 1}})
    assert said(Caller("k"), CHARGE) == "Declined"
    services.turn({})
    with pytest.raises(Declined, match="card refused"):
        Caller("k").ask(CHARGE)
    assert said(Caller("k-2"), CHARGE) == "done"
    assert entries(services.books) == [("charge", 1, "k-2", "o-1")]


@pytest.mark.parametrize(
    ("place", "fact", "says"),
    [(CHARGE, {"card": "declined"}, "card refused"), ("stock/reserve", {"sku": "sold-out"}, "out of stock")],
)
def test_some_orders_are_refused_without_any_fault(
    services: Services, place: str, fact: dict[str, str], says: str
) -> None:
    with pytest.raises(Declined, match=says):
        Caller("k").ask(place, **fact)
    assert entries(services.books) == []


def test_a_token_lower_than_the_highest_of_its_scope_changes_nothing(services: Services) -> None:
    Caller("a", token="1.5", scope="s").ask(CHARGE, "o-1")
    with pytest.raises(Unanswered, match="newer token"):
        Caller("b", token="1.4", scope="s").ask(CHARGE, "o-2")
    assert said(Caller("c", token="1.5", scope="s"), CHARGE, order="o-3") == "done"
    assert said(Caller("d", token="1.1", scope="another"), CHARGE, order="o-4") == "done"
    assert [order for _, _, _, order in entries(services.books)] == ["o-1", "o-3", "o-4"]


def test_an_old_token_is_refused_even_the_remembered_answer(services: Services) -> None:
    Caller("k", token="1.1", scope="s").ask(CHARGE)
    Caller("k", token="1.2", scope="s").ask(CHARGE)
    assert said(Caller("k", token="1.1", scope="s"), CHARGE) == "Unanswered"


def test_tokens_are_numbers_and_the_generation_goes_before_the_attempt(services: Services) -> None:
    for token, ends in (("1.9", "done"), ("1.10", "done"), ("2.1", "done"), ("1.11", "Unanswered")):
        assert said(Caller(f"k{token}", token=token, scope="s"), CHARGE, order=token) == ends, token


def test_an_undo_takes_back_what_was_done_under_the_key_it_names(services: Services) -> None:
    Caller("one").ask(CHARGE, "o-1")
    Caller("two").ask(CHARGE, "o-1")
    Caller("u", undoes="one").ask(REFUND)
    assert entries(services.books)[2:] == [("charge", -1, "one", "o-1")]


def test_an_undo_asked_twice_or_under_another_key_takes_back_once(services: Services) -> None:
    Caller("k").ask(CHARGE)
    for key in ("u", "u", "u-2"):
        Caller(key, undoes="k").ask(REFUND)
    assert [change for _, change, _, _ in entries(services.books)] == [1, -1]


def test_after_its_undo_a_key_says_undone_and_does_nothing(services: Services) -> None:
    Caller("k").ask(CHARGE)
    Caller("u", undoes="k").ask(REFUND)
    with pytest.raises(AlreadyUndone):
        Caller("k").ask(CHARGE)
    assert [change for _, change, _, _ in entries(services.books)] == [1, -1]


def test_undoing_what_was_never_done_leaves_a_tombstone_for_the_late_request(services: Services) -> None:
    Caller("u", undoes="late").ask(REFUND)
    with pytest.raises(AlreadyUndone):
        Caller("late").ask(CHARGE)
    assert entries(services.books) == []


def test_an_undo_refuses_a_key_that_did_something_else(services: Services) -> None:
    Caller("hold").ask("stock/reserve")
    with pytest.raises(Declined, match="which unpack cannot undo"):
        Caller("u", undoes="hold").ask("stock/unpack")
    assert entries(services.books) == [("reserve", 1, "hold", "o-1")]


def test_a_probe_finds_what_stands_and_nothing_else(services: Services) -> None:
    assert not Caller("p", undoes="k").ask("payments/find").happened
    charge = Caller("k").ask(CHARGE)
    answer = Caller("p", undoes="k").ask("payments/find")
    assert (answer.happened, answer.id) == (True, charge.id)
    assert not Caller("p", undoes="k").ask("stock/find").happened
    Caller("u", undoes="k").ask(REFUND)
    assert not Caller("p", undoes="k").ask("payments/find").happened


@pytest.mark.parametrize(("fences", "late"), [(True, "Unanswered"), (False, "done")])
def test_only_a_fencing_probe_keeps_out_the_requests_before_it(
    services: Services, fences: bool, late: str
) -> None:
    Caller("p", token="1.2", scope="s", undoes="k").ask("payments/find", fences=fences)
    assert said(Caller("k", token="1.1", scope="s"), CHARGE) == late


@pytest.mark.parametrize(
    ("path", "headers", "body", "says"),
    [
        ("/payments/charge", {}, '{"order_id": "o"}', "Idempotency-Key"),
        ("/payments/refund", {"Idempotency-Key": "k"}, '{"order_id": "o"}', "Makegood-Undoes"),
        ("/payments/find", {}, "{}", "Makegood-Undoes"),
        ("/payments/charge", {"Idempotency-Key": "k"}, "{}", "order_id"),
        ("/payments/charge", {"Idempotency-Key": "k", "Makegood-Token": "1.1"}, '{"order_id": "o"}', "Scope"),
        (
            "/payments/charge",
            {"Idempotency-Key": "k", "Makegood-Token": "1", "Makegood-Scope": "s"},
            '{"order_id": "o"}',
            "generation.attempt",
        ),
        ("/payments/charge", {"Idempotency-Key": "k"}, '{"order_id": "o", "cents": "1"}', "whole number"),
        ("/payments/charge", {"Idempotency-Key": "k"}, "[]", "not a JSON object"),
        ("/payments/charge", {"Idempotency-Key": "k"}, "{", "not JSON"),
        ("/payments/charge", {"Idempotency-Key": "k", "Content-Length": "999999"}, "{}", "the limit"),
    ],
)
def test_a_request_that_makes_no_sense_is_told_why(
    services: Services, path: str, headers: dict[str, str], body: str, says: str
) -> None:
    code, message = status(services, path, headers, body)
    assert (code, says in message) == (400, True), message
    assert entries(services.books) == []


def test_what_no_service_offers_is_not_found(services: Services) -> None:
    code, message = status(services, "/payments/steal", {"Idempotency-Key": "k"})
    assert code == 404
    assert "payments/charge" in message


def test_the_books_are_append_only(services: Services) -> None:
    Caller("k").ask(CHARGE)
    with closing(sqlite3.connect(services.books)) as db:
        for statement in ("UPDATE entry SET cents = 1", "DELETE FROM entry"):
            with pytest.raises(sqlite3.IntegrityError, match="never"):
                db.execute(statement)


def test_many_callers_at_once_each_get_their_effect_and_a_shared_key_gets_one(services: Services) -> None:
    callers = [(Caller(f"k-{n}"), f"o-{n}") for n in range(60)] + [(Caller("shared"), "o-shared")] * 60
    with ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(lambda item: item[0].ask(CHARGE, item[1]).id, callers))
    assert len(set(answers[:60])) == 60
    assert len(set(answers[60:])) == 1
    assert len(entries(services.books)) == 61
    assert services.totals() == {"charge": {"done": 61, "undone": 0}}


def test_a_stopped_and_restarted_process_remembers_keys_tokens_and_tombstones(services: Services) -> None:
    charge = Caller("k", token="1.3", scope="s").ask(CHARGE)
    Caller("u", undoes="gone").ask(REFUND)
    services.stop()
    assert said(Caller("k"), CHARGE) == "Unanswered"
    services.start()
    assert Caller("k", token="1.3", scope="s").ask(CHARGE) == charge
    assert said(Caller("x", token="1.2", scope="s"), CHARGE) == "Unanswered"
    assert said(Caller("gone"), CHARGE) == "AlreadyUndone"


def test_services_run_once_and_start_again_at_their_address_whoever_killed_them(services: Services) -> None:
    with pytest.raises(ServicesError, match="running already"):
        services.start()
    url = services.url
    pidfd = os.pidfd_open(services.pid)
    os.kill(services.pid, signal.SIGKILL)
    wait([pidfd], 30)
    os.close(pidfd)
    assert services.start().url == url
    assert said(Caller("k"), CHARGE) == "done"


def test_services_that_cannot_start_say_what_is_wrong(services: Services) -> None:
    with pytest.raises(ServicesError, match="no place is called 'bank'"):
        Services(services.books.with_name("other.db"), faults='{"bank": {}}').start()
