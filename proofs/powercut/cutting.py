"""Every image of a recording is opened and judged, and the engine goes on with some of them to the end.

What came of it is a ``CutResults``; a ``Failure`` says which recording, which moment and which image, and so can be had again.
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

from makegood.testing.simulator.storm import storm_app
from makegood.testing.simulator.world_files import empty_store, folder_in_memory
from proofs.powercut.birth import born
from proofs.powercut.disk import PAGE, CutPoint, Image, Tape, images, points
from proofs.powercut.examining import ExaminedImage, empty, opened, write_files
from proofs.powercut.recording import RecordedWorld, ResumedWorld
from proofs.powercut.twice import resumed
from proofs.quiet import quiet

COMMAND: Final = "python -m proofs.powercut"
BIRTH: Final = -1
"""In place of a seed: the recording of a store that is just being made."""


class RecordedRun(Protocol):
    """Something that was recorded, and knows what an image of it must be."""

    tape: Tape

    @property
    def database(self) -> str:
        """The name of the store's file."""
        ...

    def unmade(self, point: CutPoint) -> bool:
        """Whether nobody had been told of a store at this point."""
        ...

    def findings(self, point: CutPoint, found: ExaminedImage) -> list[str]:
        """Return what is wrong with an image of this point."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Thoroughness:
    """How much is looked at: ``every``: each n-th point; ``each``: images of each style that has many; ``resume``: the engine goes on
    with each n-th image, 0: with none; ``again``: the power goes a second time with each n-th image. ``settings``: pragmas for the
    writing connections, for mutants. ``enough``: failures after which a recording is given up.
    """

    every: int = 1
    each: int = 2
    resume: int = 25
    again: int = 100
    settings: tuple[str, ...] = ()
    enough: int = 20


@dataclass(frozen=True, slots=True)
class Failure:
    """An image with which something is wrong."""

    seed: int
    point: int
    style: str
    findings: tuple[str, ...]
    each: int

    @property
    def replay(self) -> str:
        """The command that makes the images of this point again, goes on with each, and keeps those with which something is wrong."""
        which = "--birth" if self.seed == BIRTH else f"--seed {self.seed}"
        return f"{COMMAND} {which} --point {self.point} --each {self.each} --resume 1 --again 1 --keep FOLDER"

    def __str__(self) -> str:
        """Return a line for a report."""
        return f"{'birth' if self.seed == BIRTH else f'seed {self.seed}'}, point {self.point}, {self.style}: {self.findings[0]}"


@dataclass(slots=True)
class CutResults:
    """What recordings came to. ``images`` by style; ``ends``: how the tasks ended with which the engine went on; ``again``: images
    of second cuts.
    """

    recordings: int = 0
    points: int = 0
    writes: int = 0
    images: Counter[str] = field(default_factory=Counter)
    resumed: int = 0
    again: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    failed: list[Failure] = field(default_factory=list)

    def merge(self, other: "CutResults") -> None:
        """Count what another has counted."""
        self.recordings += other.recordings
        self.points += other.points
        self.writes += other.writes
        self.images.update(other.images)
        self.resumed += other.resumed
        self.again += other.again
        self.ends.update(other.ends)
        self.failed += other.failed

    def lacking(self) -> list[str]:
        """Return what there must be for this to prove anything."""
        found = {
            "syncs": self.points,
            "writes": self.writes,
            "images": self.images.total(),
            "torn images": self.images["torn"],
        }
        return [f"there were no {name}" for name, count in found.items() if not count]


@contextmanager
def scratch() -> Iterator[Path]:
    """Make a folder, in memory where there is such a thing, and throw it away."""
    folder = folder_in_memory("makegood-powercut-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def record(seed: int, settings: Sequence[str] = ()) -> RecordedRun:
    """Return the recording of a seed, or of ``BIRTH``. Raises ``ListeningError``, and ``RuntimeError`` when even without a power
    cut something is wrong.
    """
    if seed == BIRTH:
        with scratch() as folder:
            return born(folder)
    world = RecordedWorld(seed, template=empty_store(page=PAGE), settings=settings)
    outcome = world.record()
    if outcome.findings:
        raise RuntimeError(f"seed {seed}: wrong without any power cut: {outcome.findings[0]}")
    return world


@dataclass(slots=True)
class Cut:
    """Cuts the power of one recording wherever it can be cut. ``only``: at this point alone; ``keep``: where to put bad images."""

    seed: int
    how: Thoroughness = field(default_factory=Thoroughness)
    only: int | None = None
    keep: Path | None = None
    tally: CutResults = field(default_factory=CutResults)
    _goes_on: list["_Chosen"] = field(default_factory=list)
    _lone: Any = field(default_factory=lambda: storm_app().find_workflow("lone"))

    def run(self) -> CutResults:
        """Record, judge every image, go on with some; returns what came of it."""
        with quiet():
            return self._run()

    def _run(self) -> CutResults:
        recording = record(self.seed, self.how.settings)
        self.tally.recordings += 1
        self.tally.writes += sum(entry.kind == "wrote" for entry in recording.tape.entries)
        with scratch() as folder:
            asyncio.run(self._judge_all(recording, folder))
        if isinstance(recording, RecordedWorld):
            for chosen in self._goes_on:
                self._go_on(recording, chosen)
        return self.tally

    async def _judge_all(self, recording: RecordedRun, folder: Path) -> None:
        following = points(recording.tape)  # a point holds a copy of the disk: never all of them at once
        point: CutPoint | None = next(following)
        while point is not None:
            after = next(following, None)
            if self._wanted(point, last=after is None):
                await self._judge_point(recording, point, folder)
            if len(self.tally.failed) >= self.how.enough:
                return
            point = after

    async def _judge_point(self, recording: RecordedRun, point: CutPoint, folder: Path) -> None:
        self.tally.points += 1
        made = images(point, self.how.each, random.Random(f"{self.seed} at {point.number}"))
        for number, (style, files) in enumerate(made):
            await self._judge(recording, _Chosen(point, number, style, files), folder)
            if len(self.tally.failed) >= self.how.enough:
                return

    def _wanted(self, point: CutPoint, *, last: bool) -> bool:
        if self.only is not None:
            return point.number == self.only
        return last or point.number % self.how.every == 0

    async def _judge(self, recording: RecordedRun, chosen: "_Chosen", folder: Path) -> None:
        self.tally.images[chosen.style] += 1
        count = self.tally.images.total()
        unmade = recording.unmade(chosen.point)
        found = await opened(chosen.files, folder, recording.database, migrate=unmade)
        wrong = recording.findings(chosen.point, found)
        if wrong:
            self._fail(chosen, chosen.style, wrong)
            return
        if self.how.resume and count % self.how.resume == 0:
            self._goes_on.append(chosen)
        if self.how.again and count % self.how.again == 0 and not unmade:
            await self._cut_again(chosen, found, recording.database, folder)

    async def _cut_again(self, chosen: "_Chosen", found: ExaminedImage, database: str, folder: Path) -> None:
        write_files(chosen.files, folder)
        second = await resumed(self._lone, found, chosen.files, folder, database)
        empty(folder)
        for point in points(second.tape):
            for style, files in images(
                point,
                1,
                random.Random(f"{self.seed} again {chosen.point.number} {chosen.number} {point.number}"),
            ):
                self.tally.again += 1
                wrong = second.findings(point, await opened(files, folder, database))
                if wrong:
                    self._fail(chosen, f"{chosen.style}, and a second cut ({style})", wrong)

    def _go_on(self, world: RecordedWorld, chosen: "_Chosen") -> None:
        rng = random.Random(f"{self.seed} on {chosen.point.number} {chosen.number}")
        outcome = ResumedWorld(world, chosen.point, chosen.files, rng).run()
        self.tally.resumed += 1
        self.tally.ends.update(outcome.ends)
        if outcome.findings:
            self._fail(chosen, f"{chosen.style}, and the engine went on", outcome.findings)

    def _fail(self, chosen: "_Chosen", style: str, wrong: Sequence[str]) -> None:
        self.tally.failed.append(Failure(self.seed, chosen.point.number, style, tuple(wrong), self.how.each))
        if self.keep is not None:
            folder = self.keep / f"{chosen.point.number}-{len(self.tally.failed)}"
            folder.mkdir(parents=True, exist_ok=True)
            write_files(chosen.files, folder)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """One image: the ``number``-th of its point."""

    point: CutPoint
    number: int
    style: str
    files: Image
