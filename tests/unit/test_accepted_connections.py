"""Which of a server's connections goes where there is no room, and lines of a log that strangers cause."""

import asyncio
from typing import cast

from makegood.base.accepted_connections import Connections
from makegood.base.host_lists import entry
from makegood.base.sparse_log import PAUSE, Sparing


class Wire:
    """A transport that can only be cut off."""

    cut = False

    def abort(self) -> None:
        """Cut it off."""
        self.cut = True


def wires(count: int) -> list[asyncio.Transport]:
    """Return so many."""
    return [cast("asyncio.Transport", Wire()) for _ in range(count)]


def cut(some: list[asyncio.Transport]) -> list[bool]:
    """Return which are cut off."""
    return [cast("Wire", one).cut for one in some]


def test_the_oldest_silent_one_goes_and_one_that_spoke_stays() -> None:
    some, there = wires(5), Connections(3)
    for one in some[:3]:
        there.join(one)
    there.keep(some[0])
    there.join(some[3])
    assert cut(some) == [False, True, False, False, False]
    there.leave(some[2])
    there.join(some[4])
    assert cut(some) == [False, True, False, False, False]
    assert len(there) == 3


def test_one_that_has_what_it_wanted_goes_before_silent_ones() -> None:
    some, there = wires(3), Connections(2)
    there.join(some[0])
    there.join(some[1])
    there.keep(some[1])
    there.spend(some[1])
    there.join(some[2])
    assert cut(some) == [False, True, False]


def test_where_all_have_spoken_the_one_that_spoke_longest_ago_goes() -> None:
    some, there = wires(3), Connections(2)
    for one in some[:2]:
        there.join(one)
        there.keep(one)
    there.keep(some[0])
    there.join(some[2])
    assert cut(some) == [False, True, False]
    there.keep(some[1])  # it has gone
    there.abort()
    assert (cut(some), len(there)) == ([True, True, True], 0)


def test_a_line_is_due_once_a_minute_and_says_how_many_were_left_out() -> None:
    sparing = Sparing()
    assert [sparing.due(float(second)) for second in range(3)] == ["", None, None]
    assert sparing.due(PAUSE) == " (and 2 more since the last such line)"
    assert sparing.due(2 * PAUSE) == ""


def test_an_entry_covers_what_it_means_and_no_more() -> None:
    """Of pairs: the first covers the second."""

    def covers(one: str, other: str) -> bool:
        return entry(one, "it").covers(entry(other, "it"))

    assert covers("*.b.example", "a.b.example")
    assert covers("*.b.example", "*.a.b.example")
    assert covers("a.example", "a.example:443")
    assert covers("10.0.0.0/8", "10.1.0.0/16")
    for one, other in (
        ("a.b.example", "*.b.example"), ("*.b.example", "b.example"), ("a.example:443", "a.example"), ("a.example:443", "a.example:80"),
        ("10.1.0.0/16", "10.0.0.0/8"), ("10.0.0.0/8", "::/0"), ("::/0", "a.example"), ("a.example", "::/0"),
    ):  # fmt: skip
        assert not covers(one, other), (one, other)
