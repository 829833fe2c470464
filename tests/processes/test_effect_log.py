"""The service of the fault tests and its auditor: an auditor that finds nothing in falsified books would prove nothing."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from tests.processes.effect_log import Ask, Books, StaleTokenError, TombstoneError, audit


@pytest.fixture
def service(tmp_path: Path) -> Books:
    """Empty books."""
    books = Books(tmp_path / "books.db")
    books.create()
    return books


def ask(key: str = "k", token: tuple[int, int] = (1, 1), ref: str = "a") -> Ask:
    """Return who asks for the step ``charge``."""
    return Ask("scope", key, token, ref, "charge")


def falsify(service: Books, key: str, change: int, ref: str = "a", step: str = "charge") -> None:
    """Enter an effect past the service."""
    with contextlib.closing(sqlite3.connect(service.path)) as connection:
        connection.execute(
            "insert into entry (scope, key, change, generation, attempt, ref, step, at) values ('s', ?, ?, 1, 1, ?, ?, 0)",
            (key, change, ref, step),
        )
        connection.commit()


def test_a_key_has_one_effect_and_one_answer(service: Books) -> None:
    assert service.do(ask(), "first", 1) == "first"
    assert service.do(ask(token=(1, 2)), "second", 1) == "first"
    assert [row["verdict"] for row in service.rows("call")] == ["done", "repeated"]
    assert audit(service, {"a": {"charge": 1}}) == []


def test_a_lower_token_does_nothing(service: Books) -> None:
    service.do(ask(token=(2, 1)), "", 1)
    with pytest.raises(StaleTokenError):
        service.do(ask(key="other", token=(1, 9)), "", 1)
    with pytest.raises(StaleTokenError):
        service.undo(ask(token=(1, 9)), "k", 1)
    assert audit(service, {"a": {"charge": 1}}) == []


def test_a_do_after_its_undo_does_nothing(service: Books) -> None:
    assert not service.undo(ask(key="undo", token=(1, 2)), "k", 1)
    with pytest.raises(TombstoneError):
        service.do(ask(token=(1, 3)), "", 1)
    assert audit(service, {"a": {"charge": 0}}) == []


def test_an_undo_takes_back_once(service: Books) -> None:
    service.do(ask(), "", 1)
    assert service.asked(ask(), "k", 1) == ""
    assert service.undo(ask(key="undo", token=(1, 2)), "k", 1)
    assert not service.undo(ask(key="undo", token=(1, 3)), "k", 1)
    assert service.asked(ask(), "k", 1) is None
    assert audit(service, {"a": {"charge": 0}}) == []


def test_the_auditor_finds_falsified_books(service: Books) -> None:
    """Done twice, undone twice, undone before it was done, missing, standing although undone, done for nobody."""
    service.do(ask(), "", 1)
    assert audit(service, {"a": {"charge": 0}}) == ["charge of order a stands 1 times, 0 is right"]
    assert audit(service, {"a": {"charge": 1, "send": 1}}) == ["send of order a stands 0 times, 1 is right"]
    assert audit(service, {}) == ["charge of order a was not expected, it stands 1 times"]
    falsify(service, "k", 1)
    (twice, count) = audit(service, {"a": {"charge": 1}})
    assert "went [1, 1]" in twice
    assert count == "charge of order a stands 2 times, 1 is right"
    falsify(service, "b", -1, ref="b")
    falsify(service, "b", 1, ref="b")
    assert any("went [-1, 1]" in line for line in audit(service, {"a": {"charge": 1}, "b": {"charge": 0}}))
    falsify(service, "b", -1, ref="b")
    assert any(
        "went [-1, 1, -1]" in line for line in audit(service, {"a": {"charge": 1}, "b": {"charge": 0}})
    )


def test_two_keys_for_one_step_are_found(service: Books) -> None:
    """Each key is in order by itself; the step stands twice."""
    service.do(ask(), "", 1)
    service.do(ask(key="other", token=(1, 2)), "", 1)
    assert audit(service, {"a": {"charge": 1}}) == ["charge of order a stands 2 times, 1 is right"]
