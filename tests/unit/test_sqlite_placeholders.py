"""Numbered placeholders on Python 3.12.0 to 3.12.3, which would warn of each of their values."""

import sqlite3
import sys
import warnings
from contextlib import closing

from makegood.base.sqlite_log import Connection, PlainConnection, connect


def test_a_value_goes_to_each_place_that_names_its_number() -> None:
    """Also if a number is left out or comes twice, and to statements whose placeholders have no numbers."""
    with closing(sqlite3.connect(":memory:", factory=PlainConnection)) as connection:
        assert connection.execute("select ?1, ?3, ?1", (5, 6, 7)).fetchone() == (5, 7, 5)
        assert connection.execute("select ?2, ?1, ?", (5, 6, 7)).fetchone() == (6, 5, 7)
        assert connection.execute("select ?, ?", (5, 6)).fetchone() == (5, 6)
        connection.execute("create table t (a, b)")
        connection.executemany("insert into t values (?2, ?1)", [(1, 2), (3, 4)])
        connection.executemany("insert into t values (?, ?)", [(5, 6)])
        assert connection.execute("select a, b from t").fetchall() == [(2, 1), (4, 3), (5, 6)]


def test_only_the_versions_that_warn_have_such_connections() -> None:
    """On the others nothing comes between the statement and the driver; on none is there a warning."""
    assert (Connection is PlainConnection) == ((3, 12) <= sys.version_info[:3] < (3, 12, 4))
    with warnings.catch_warnings(), closing(connect(":memory:", timeout=1)) as connection:
        warnings.simplefilter("error")
        assert connection.execute("select ?1, ?1", (5,)).fetchone() == (5, 5)
