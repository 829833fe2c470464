"""What a disk may hold after the power went: pure data, no file is touched.

A ``Tape`` is what happened, in order: writes, truncations, files created and deleted, syncs, and *marks*,
which record the program's progress. ``points`` plays it back: at each sync, the moment before it has
succeeded, and at the end. Between two syncs nothing becomes durable, so what a disk may hold at any moment
between them it may also hold at the second one, where most was written and most was acknowledged. No other
moment has to be checked.

At a point the disk holds everything that was synced, and of later writes any part:

- *dropped*: nothing of it; *kept*: all of it;
- *pieces*: each sector (512 bytes) or page (4096) of each write reached the disk or did not, in any order;
- *torn*: all writes up to one that is cut at a sector, and nothing, or any, of the later ones.

A sync of one file also makes durable which files exist, as journalling file systems (ext4, XFS) do; files
that were created or deleted since may exist or not. A sector is written whole or not at all, and a write
harms nothing outside of itself: what SQLite calls powersafe overwrite, and assumes by default.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

SECTOR = 512
PAGE = 4096

Kind = Literal["created", "wrote", "truncated", "deleted", "synced", "mark"]
Image = Mapping[str, bytes]
"""The files of a folder, by name."""


class DiskEvent(NamedTuple):
    """One thing that happened."""

    kind: Kind
    name: str
    at: int = 0
    """Offset of a write, size of a truncation, value of a mark; of a sync, how many entries existed when it
    began.
    """
    data: bytes = b""
    lasting: bool = False
    """Whether a deletion was synced as well."""


@dataclass(slots=True)
class Tape:
    """What happened, in order; ``listening`` reports to it."""

    base: dict[str, bytes] = field(default_factory=dict)
    """The files that existed and were durable before."""
    entries: list[DiskEvent] = field(default_factory=list)

    def created(self, name: str) -> None:
        """A file was created."""
        self.entries.append(DiskEvent("created", name))

    def wrote(self, name: str, offset: int, data: bytes) -> None:
        """Bytes were written."""
        self.entries.append(DiskEvent("wrote", name, offset, data))

    def truncated(self, name: str, size: int) -> None:
        """A file was truncated or extended."""
        self.entries.append(DiskEvent("truncated", name, size))

    def deleted(self, name: str, *, lasting: bool) -> None:
        """A file was deleted."""
        self.entries.append(DiskEvent("deleted", name, lasting=lasting))

    def locking(self, name: str, lock: int) -> None:
        """A lock changes nothing on the disk."""

    def checkpointing(self, name: str) -> None:
        """A checkpoint begins: its writes are heard by themselves."""

    def syncing(self, name: str) -> int:  # noqa: ARG002 - of any file
        """A sync begins."""
        return len(self.entries)

    def synced(self, name: str, mark: object) -> None:
        """A sync has succeeded."""
        assert isinstance(mark, int)
        self.entries.append(DiskEvent("synced", name, mark))

    def mark(self, name: str, value: int) -> None:
        """The program has reached this value of a mark."""
        self.entries.append(DiskEvent("mark", name, value))


@dataclass(frozen=True, slots=True)
class CutPoint:
    """A moment at which the power may go: just before a sync succeeds, or at the end."""

    number: int
    durable: Image
    """What is certainly on the disk."""
    pending: tuple[DiskEvent, ...]
    """What was done since, in order."""
    marks: Mapping[str, int]
    """The last value of each mark."""


def points(tape: Tape) -> Iterator[CutPoint]:
    """Yield every moment at which the power may go."""
    durable = {name: bytearray(data) for name, data in tape.base.items()}
    pending: list[tuple[int, DiskEvent]] = []
    marks: dict[str, int] = {}
    number = 0

    def here() -> CutPoint:
        return CutPoint(
            number, {name: bytes(data) for name, data in durable.items()}, tuple(entry for _, entry in pending), dict(marks)
        )  # fmt: skip

    for index, entry in enumerate(tape.entries):
        if entry.kind == "mark":
            marks[entry.name] = entry.at
        elif entry.kind == "synced":
            yield here()
            number += 1
            pending = _harden(durable, pending, entry)
        else:
            pending.append((index, entry))
            if entry.kind == "deleted" and entry.lasting:
                pending = _harden(durable, pending, DiskEvent("synced", "", index + 1))
    yield here()


def _harden(
    durable: dict[str, bytearray], pending: list[tuple[int, DiskEvent]], sync: DiskEvent
) -> list[tuple[int, DiskEvent]]:
    """Make durable what a sync makes durable; returns what is still pending.

    Of the synced file, everything that was done before the sync began. Of the others, their creation or
    deletion.
    """
    left: list[tuple[int, DiskEvent]] = []
    for index, entry in pending:
        if index >= sync.at or (entry.name != sync.name and entry.kind not in ("created", "deleted")):
            left.append((index, entry))
            continue
        if entry.kind == "deleted":  # And with it, what was written into it.
            left = [name for name in left if name[1].name != entry.name]
        apply(durable, entry)
    return left


def apply(files: dict[str, bytearray], entry: DiskEvent, spans: list[tuple[int, int]] | None = None) -> None:
    """Apply an entry to files; of a write only ``spans`` of its bytes (start, end) if given."""
    if entry.kind == "deleted":
        files.pop(entry.name, None)
    elif entry.kind == "created":
        files.setdefault(entry.name, bytearray())
    elif entry.name not in files:
        return  # the file itself did not reach the disk
    elif entry.kind == "truncated":
        _resize(files[entry.name], entry.at)
    else:
        file = files[entry.name]
        for start, end in [(0, len(entry.data))] if spans is None else spans:
            if len(file) < entry.at + end:
                _resize(file, entry.at + end)
            file[entry.at + start : entry.at + end] = entry.data[start:end]


def _resize(file: bytearray, size: int) -> None:
    if size < len(file):
        del file[size:]
    else:
        file.extend(bytes(size - len(file)))


# -- images ----------------------------------------------------------------------------------------

STYLES: tuple[str, ...] = ("dropped", "kept", "torn", "pieces of 512", "pieces of 4096")
"""How pending entries may have reached the disk."""


def image(point: CutPoint, style: str, rng: random.Random) -> Image:
    """Return what a disk may hold at a point. ``rng`` decides what "dropped" and "kept" leave open."""
    if style == "dropped":
        return point.durable
    if style == "kept":
        return _built(point, lambda _, entry: [(0, len(entry.data))])
    if style == "torn":
        return _built(point, _torn(point, rng))
    size, share = int(style.rpartition(" ")[2]), rng.choice((0.1, 0.5, 0.5, 0.9))
    return _built(point, lambda _, entry: _pieces(entry, size, lambda: rng.random() < share))


def _built(point: CutPoint, choose: Callable[[int, DiskEvent], list[tuple[int, int]]]) -> Image:
    files = {name: bytearray(data) for name, data in point.durable.items()}
    missing: set[str] = set()
    for index, entry in enumerate(point.pending):
        spans = choose(index, entry)
        if entry.name in missing:  # written into a file whose name never reached the disk
            continue
        if not spans:
            if entry.kind in ("created", "deleted"):
                missing.add(entry.name)
            continue
        apply(files, entry, spans if entry.kind == "wrote" else None)
    return {name: bytes(data) for name, data in files.items()}


def _pieces(entry: DiskEvent, size: int, reaches: Callable[[], bool]) -> list[tuple[int, int]]:
    """Return the spans of a write that reach the disk; of anything else the whole of it, or nothing."""
    if entry.kind != "wrote":
        return [(0, 0)] if reaches() else []
    return [span for span in _sectors(entry, size) if reaches()]


def _sectors(entry: DiskEvent, size: int) -> list[tuple[int, int]]:
    """Return the spans of a write's bytes that lie within one piece of the disk each."""
    first, end = entry.at // size * size, entry.at + len(entry.data)
    return [
        (max(start, entry.at) - entry.at, min(start + size, end) - entry.at)
        for start in range(first, end, size)
    ]


def _torn(point: CutPoint, rng: random.Random) -> Callable[[int, DiskEvent], list[tuple[int, int]]]:
    writes = [index for index, entry in enumerate(point.pending) if entry.kind == "wrote"]
    cut = rng.choice(writes) if writes else len(point.pending)
    disorder = rng.random() < 0.5

    def chosen(index: int, entry: DiskEvent) -> list[tuple[int, int]]:
        if index < cut:
            return [(0, len(entry.data))]
        if index == cut:
            spans = _sectors(entry, SECTOR)
            return spans[: rng.randrange(len(spans))]
        return _pieces(entry, SECTOR, lambda: disorder and rng.random() < 0.5)

    return chosen


def images(point: CutPoint, each: int, rng: random.Random) -> Iterator[tuple[str, Image]]:
    """Yield different states of the disk at a point, with their style: ``each`` draws of the styles that have
    many.
    """
    if not point.pending:
        yield "dropped", point.durable
        return
    distinct: list[Image] = []
    for style in STYLES:
        for _ in range(1 if style in ("dropped", "kept") else each):
            contents = image(point, style, rng)
            if contents not in distinct:
                distinct.append(contents)
                yield style, contents
