"""What is handed to SQLite as one JSON text comes out as it went in."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makegood.base.sqlite_log import connect
from makegood.store.sqlite import bulk_change

IDS = st.integers(min_value=0, max_value=2**63 - 1)


@given(st.lists(st.tuples(IDS, st.binary(min_size=1, max_size=40)), max_size=30))
def test_each_task_gets_its_own_value(pairs: list[tuple[int, bytes]]) -> None:
    """Also ids that no floating point number can tell apart, and zero bytes."""
    connection = connect(":memory:", timeout=5)
    rows: list[tuple[int, bytes]] = []
    for tasks, data in bulk_change.spans([task for task, _ in pairs], [value for _, value in pairs]):
        sql = f"select cast(x.key as integer), {bulk_change.SPAN} from json_each(?1) x"
        rows += connection.execute(sql, (tasks, data)).fetchall()
    connection.close()
    assert rows == pairs


@given(st.lists(IDS, max_size=30))
def test_each_task_is_there(of: list[int]) -> None:
    connection = connect(":memory:", timeout=5)
    rows = connection.execute("select x.value from json_each(?1) x", (bulk_change.tasks(of),)).fetchall()
    connection.close()
    assert [task for (task,) in rows] == of


def test_what_is_large_goes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite takes no value above a thousand million bytes; a value larger than a part goes alone."""
    monkeypatch.setattr(bulk_change, "_MOST_BYTES", 10)
    parts = list(bulk_change.spans([1, 2, 3, 4], [b"12345", b"12345", b"1", b"x" * 30]))
    assert [data for _, data in parts] == [b"1234512345", b"1", b"x" * 30]
    assert [task for tasks, _ in parts for task in json.loads(tasks)] == ["1", "2", "3", "4"]
