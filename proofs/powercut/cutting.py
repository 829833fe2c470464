"""Every image of a recording is opened and judged, and the engine continues with some of them to the end.

The result is a ``CutResults``. A ``Failure`` names the recording, the moment and the image, so that it can be
reproduced.
"""

import asyncio
import random
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from makegood.testing.simulator.world_files import empty_store, folder_in_memory
from proofs.powercut.birth import born
from proofs.powercut.disk import PAGE, CutPoint, Image, Tape, images, points
from proofs.powercut.examining import ExaminedImage, empty, opened, write_files
from proofs.powercut.operations import WAITS
from proofs.powercut.recording import RecordedWorld, ResumedWorld
from proofs.powercut.twice import resumed
from proofs.powercut.waiting import WaitingWorld
from proofs.quiet import quiet
from proofs.storms.shop import storm_app

COMMAND: Final = "python -m proofs.powercut"
BIRTH: Final = -1
"""In place of a seed: the recording of a store while it is created."""
_ENOUGH_TO_MEET_ALL: Final = 4
"""Worlds in which tasks wait that contain, together, every operation on such tasks."""


class RecordedRun(Protocol):
    """Something that was recorded, and knows what an image of it must be."""

    tape: Tape

    @property
    def database(self) -> str:
        """The name of the store's file."""
        ...

    def unmade(self, point: CutPoint) -> bool:
        """Whether no store was acknowledged yet at this point."""
        ...

    def operations(self, point: CutPoint) -> frozenset[str]:
        """Return what is under way at this point."""
        ...

    def findings(self, point: CutPoint, image: ExaminedImage) -> list[str]:
        """Return what is wrong with an image of this point."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Thoroughness:
    """How much is checked."""

    every: int = 1
    """Each n-th point, and each at which something is done to a task that waits."""
    each: int = 2
    """Images of each style that has many."""
    resume: int = 25
    """The engine continues with each n-th image; 0: with none."""
    again: int = 100
    """The power goes a second time with each n-th image."""
    settings: tuple[str, ...] = ()
    """Pragmas for the writing connections, for mutants."""
    enough: int = 20
    """Failures after which a recording is given up."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A bad image."""

    seed: int
    point: int
    style: str
    findings: tuple[str, ...]
    each: int
    operations: frozenset[str] = frozenset()
    """What was under way."""

    @property
    def replay(self) -> str:
        """The command that makes the images of this point again, continues with each, and keeps the bad
        ones.
        """
        which = "--birth" if self.seed == BIRTH else f"--seed {self.seed}"
        return f"{COMMAND} {which} --point {self.point} --each {self.each} --resume 1 --again 1 --keep FOLDER"

    def __str__(self) -> str:
        """Return a line for a report."""
        return f"{'birth' if self.seed == BIRTH else f'seed {self.seed}'}, point {self.point}, {self.style}: {self.findings[0]}"


@dataclass(slots=True)
class CutResults:
    """Counts over recordings."""

    recordings: int = 0
    points: int = 0
    writes: int = 0
    images: Counter[str] = field(default_factory=Counter)
    """Images by style."""
    waiting: int = 0
    """Recordings of worlds in which tasks wait."""
    syncs_of: Counter[str] = field(default_factory=Counter)
    """Points by what was under way: several operations may share a transaction."""
    images_of: Counter[str] = field(default_factory=Counter)
    """Images by what was under way."""
    resumed: int = 0
    again: int = 0
    """Images of second cuts."""
    ends: Counter[str] = field(default_factory=Counter)
    """How the tasks ended with which the engine continued."""
    failed: list[Failure] = field(default_factory=list)

    def merge(self, other: "CutResults") -> None:
        """Add another tally's counts."""
        self.recordings += other.recordings
        self.points += other.points
        self.writes += other.writes
        self.images.update(other.images)
        self.waiting += other.waiting
        self.syncs_of.update(other.syncs_of)
        self.images_of.update(other.images_of)
        self.resumed += other.resumed
        self.again += other.again
        self.ends.update(other.ends)
        self.failed += other.failed

    def lacking(self) -> list[str]:
        """Return what is missing for this to prove anything."""
        counts = {
            "syncs": self.points,
            "writes": self.writes,
            "images": self.images.total(),
            "torn images": self.images["torn"],
        }
        gaps = [f"there were no {name}" for name, count in counts.items() if not count]
        if self.waiting >= _ENOUGH_TO_MEET_ALL:
            gaps += [f"no sync of: {name}" for name in WAITS if not self.syncs_of[name]]
        return gaps


@contextmanager
def scratch() -> Iterator[Path]:
    """Make a folder, in memory if possible, and remove it at the end."""
    folder = folder_in_memory("makegood-powercut-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def record(seed: int, settings: Sequence[str] = ()) -> RecordedRun:
    """Return the recording of a seed, or of ``BIRTH``. In the worlds of odd seeds tasks wait.

    Raises ``ListeningError``, and ``RuntimeError`` if something is wrong even without a power cut.
    """
    if seed == BIRTH:
        with scratch() as folder:
            return born(folder)
    kind = WaitingWorld if seed % 2 else RecordedWorld
    world = kind(seed, template=empty_store(page=PAGE), settings=settings)
    outcome = world.record()
    if outcome.findings:
        raise RuntimeError(f"seed {seed}: wrong without any power cut: {outcome.findings[0]}")
    return world


@dataclass(slots=True)
class Cut:
    """Cuts the power of one recording at every possible point."""

    seed: int
    how: Thoroughness = field(default_factory=Thoroughness)
    only: int | None = None
    """Cut at this point only."""
    keep: Path | None = None
    """Where to put bad images."""
    tally: CutResults = field(default_factory=CutResults)
    _goes_on: list["_Chosen"] = field(default_factory=list)
    _lone: Any = field(default_factory=lambda: storm_app()._find_workflow("lone"))

    def run(self) -> CutResults:
        """Record, judge every image, continue with some; returns the counts."""
        with quiet():
            return self._run()

    def _run(self) -> CutResults:
        recording = record(self.seed, self.how.settings)
        self.tally.recordings += 1
        self.tally.waiting += isinstance(recording, WaitingWorld)
        self.tally.writes += sum(entry.kind == "wrote" for entry in recording.tape.entries)
        with scratch() as folder:
            asyncio.run(self._judge_all(recording, folder))
        if isinstance(recording, RecordedWorld):
            for cut in self._goes_on:
                self._go_on(recording, cut)
        return self.tally

    async def _judge_all(self, recording: RecordedRun, folder: Path) -> None:
        following = points(recording.tape)  # A point holds a copy of the disk: never all of them at once.
        point: CutPoint | None = next(following)
        while point is not None:
            after = next(following, None)
            if self._wanted(recording, point, last=after is None):
                await self._judge_point(recording, point, folder)
            if len(self.tally.failed) >= self.how.enough:
                return
            point = after

    async def _judge_point(self, recording: RecordedRun, point: CutPoint, folder: Path) -> None:
        self.tally.points += 1
        cuts = images(point, self.how.each, random.Random(f"{self.seed} at {point.number}"))
        operations = recording.operations(point)
        self.tally.syncs_of.update(operations)
        for number, (style, files) in enumerate(cuts):
            self.tally.images_of.update(operations)
            await self._judge(recording, _Chosen(point, number, style, files), folder)
            if len(self.tally.failed) >= self.how.enough:
                return

    def _wanted(self, recording: RecordedRun, point: CutPoint, *, last: bool) -> bool:
        if self.only is not None:
            return point.number == self.only
        return last or point.number % self.how.every == 0 or not recording.operations(point).isdisjoint(WAITS)

    async def _judge(self, recording: RecordedRun, cut: "_Chosen", folder: Path) -> None:
        self.tally.images[cut.style] += 1
        count = self.tally.images.total()
        unmade = recording.unmade(cut.point)
        image = await opened(cut.files, folder, recording.database, migrate=unmade)
        wrong = recording.findings(cut.point, image)
        if wrong:
            self._fail(recording, cut, cut.style, wrong)
            return
        if self.how.resume and count % self.how.resume == 0:
            self._goes_on.append(cut)
        if self.how.again and count % self.how.again == 0 and not unmade:
            await self._cut_again(recording, cut, image, folder)

    async def _cut_again(
        self, recording: RecordedRun, cut: "_Chosen", image: ExaminedImage, folder: Path
    ) -> None:
        database = recording.database
        write_files(cut.files, folder)
        second = await resumed(self._lone, image, cut.files, folder, database)
        empty(folder)
        for point in points(second.tape):
            for style, files in images(
                point,
                1,
                random.Random(f"{self.seed} again {cut.point.number} {cut.number} {point.number}"),
            ):
                self.tally.again += 1
                wrong = second.findings(point, await opened(files, folder, database))
                if wrong:
                    self._fail(recording, cut, f"{cut.style}, and a second cut ({style})", wrong)

    def _go_on(self, world: RecordedWorld, cut: "_Chosen") -> None:
        rng = random.Random(f"{self.seed} on {cut.point.number} {cut.number}")
        outcome = ResumedWorld(world, cut.point, cut.files, rng).run()
        self.tally.resumed += 1
        self.tally.ends.update(outcome.ends)
        if outcome.findings:
            self._fail(world, cut, f"{cut.style}, and the engine went on", outcome.findings)

    def _fail(self, recording: RecordedRun, cut: "_Chosen", style: str, wrong: Sequence[str]) -> None:
        operations = recording.operations(cut.point)
        self.tally.failed.append(
            Failure(self.seed, cut.point.number, style, tuple(wrong), self.how.each, operations)
        )
        if self.keep is not None:
            folder = self.keep / f"{cut.point.number}-{len(self.tally.failed)}"
            folder.mkdir(parents=True, exist_ok=True)
            write_files(cut.files, folder)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """One image: the ``number``-th of its point."""

    point: CutPoint
    number: int
    style: str
    files: Image
