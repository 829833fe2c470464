"""The model of a disk: what a sync makes durable, and what may be left of the rest when the power goes."""

import random

import pytest

from proofs.powercut.disk import SECTOR, STYLES, CutPoint, Tape, image, images, points


def last(tape: Tape) -> CutPoint:
    """Return the last moment."""
    return list(points(tape))[-1]


def drawn(point: CutPoint, style: str, count: int = 60) -> list[dict[str, bytes]]:
    """Return many images of one style."""
    return [dict(image(point, style, random.Random(n))) for n in range(count)]


def test_a_sync_makes_durable_what_was_written_into_its_file_and_nothing_else() -> None:
    tape = Tape({"a": b"....", "b": b"...."})
    tape.wrote("a", 0, b"AA")
    tape.wrote("b", 0, b"BB")
    tape.synced("a", tape.syncing("a"))
    before, after = points(tape)
    assert before.durable == {"a": b"....", "b": b"...."}
    assert after.durable == {"a": b"AA..", "b": b"...."}
    assert [entry.name for entry in after.pending] == ["b"]


def test_what_is_written_while_a_sync_is_under_way_is_not_durable_by_it() -> None:
    tape = Tape({"a": b"...."})
    tape.wrote("a", 0, b"A")
    start = tape.syncing("a")
    tape.wrote("a", 1, b"B")
    tape.synced("a", start)
    assert last(tape).durable == {"a": b"A..."}


def test_a_point_is_the_moment_before_a_sync_has_succeeded_and_knows_what_was_said_until_then() -> None:
    tape = Tape({"a": b""})
    tape.wrote("a", 0, b"1")
    tape.mark("told", 1)
    tape.synced("a", tape.syncing("a"))
    tape.mark("told", 2)
    first, end = points(tape)
    assert (first.durable, first.marks) == ({"a": b""}, {"told": 1})
    assert (end.durable, end.marks) == ({"a": b"1"}, {"told": 2})


def test_a_sync_of_any_file_makes_durable_which_files_there_are() -> None:
    tape = Tape({"a": b"old", "gone": b"x"})
    tape.created("new")
    tape.wrote("new", 0, b"n")
    tape.deleted("gone", lasting=False)
    assert last(tape).durable == {"a": b"old", "gone": b"x"}
    tape.synced("a", tape.syncing("a"))
    assert last(tape).durable == {"a": b"old", "new": b""}


def test_a_deletion_that_was_synced_is_durable_at_once() -> None:
    tape = Tape({"a": b"x"})
    tape.wrote("a", 0, b"y")
    tape.deleted("a", lasting=True)
    assert (last(tape).durable, last(tape).pending) == ({}, ())


def test_what_is_written_into_a_new_file_of_an_old_name_never_shows_in_the_old_one() -> None:
    """The old file may come back, with what was in it; the new one was another file."""
    tape = Tape({"log": b"old log"})
    tape.deleted("log", lasting=False)
    tape.created("log")
    tape.wrote("log", 0, b"NEW")
    contents = {files.get("log") for style in STYLES for files in drawn(last(tape), style)}
    assert {b"old log", b"NEW", None} <= contents
    assert contents <= {b"old log", b"NEW", b"", None}


def test_pieces_are_whole_sectors_at_their_place_on_the_disk_in_any_combination() -> None:
    tape = Tape({"a": bytes(4 * SECTOR)})
    tape.wrote("a", SECTOR // 2, b"x" * (2 * SECTOR))
    contents = {files["a"] for files in drawn(last(tape), "pieces of 512", 200)}
    half = SECTOR // 2
    combinations = {
        bytes(half) + first * half + second * SECTOR + third * half + bytes(SECTOR + half)
        for first in (b"\0", b"x") for second in (b"\0", b"x") for third in (b"\0", b"x")
    }  # fmt: skip
    assert contents == combinations


def test_a_torn_write_ends_at_a_sector_and_all_before_it_is_there() -> None:
    tape = Tape({"a": bytes(3 * SECTOR), "b": b"."})
    tape.wrote("b", 0, b"B")
    tape.wrote("a", 0, b"x" * (3 * SECTOR))
    torn_images = [files for files in drawn(last(tape), "torn") if files["b"] == b"B"]
    lengths = {len(files["a"].rstrip(b"\0")) for files in torn_images}
    assert lengths == {0, SECTOR, 2 * SECTOR}


def test_a_truncation_happens_or_does_not_and_a_write_beyond_the_end_leaves_zeros_before_it() -> None:
    tape = Tape({"a": b"abcdef"})
    tape.truncated("a", 2)
    assert {files["a"] for files in drawn(last(tape), "pieces of 512")} == {b"abcdef", b"ab"}
    tape = Tape({"a": b""})
    tape.wrote("a", 0, b"x" * SECTOR)
    tape.wrote("a", SECTOR, b"y")
    assert bytes(SECTOR) + b"y" in {files["a"] for files in drawn(last(tape), "pieces of 512")}


def test_images_of_a_point_are_all_different_and_of_every_style() -> None:
    tape = Tape({"a": bytes(4 * 4096)})
    for page in range(4):
        tape.wrote("a", page * 4096, bytes([page + 1]) * 4096)
    states = list(images(last(tape), 3, random.Random(1)))
    assert {style for style, _ in states} == set(STYLES)
    assert len({bytes(files["a"]) for _, files in states}) == len(states)


def test_where_nothing_is_open_there_is_one_image() -> None:
    assert list(images(last(Tape({"a": b"x"})), 5, random.Random(1))) == [("dropped", {"a": b"x"})]


@pytest.mark.parametrize("style", STYLES)
def test_what_is_durable_is_in_every_image(style: str) -> None:
    tape = Tape({"a": b"...."})
    tape.wrote("a", 0, b"AA")
    tape.synced("a", tape.syncing("a"))
    tape.wrote("a", 2, b"BB")
    assert all(files["a"].startswith(b"AA") for files in drawn(last(tape), style))
