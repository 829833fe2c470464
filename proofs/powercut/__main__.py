"""``python -m proofs.powercut``: what a disk may hold after a power cut, at every sync of many recordings."""

import json
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from proofs.powercut.cutting import BIRTH, Cut, CutResults, Thoroughness
from proofs.powercut.disk import STYLES
from proofs.powercut.listening import ListeningError, library
from proofs.powercut.operations import OPERATIONS
from proofs.spreading import bar, spread

_SHOWN = 10


def _cut(seed: int, how: Thoroughness, only: int | None = None, keep: Path | None = None) -> CutResults:
    return Cut(seed, how, only=only, keep=keep).run()


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seeds", default=20, show_default=True, help="How many worlds to record.")
@click.option("--from", "first", default=0, show_default=True, help="The first of them.")
@click.option("--seed", "one", type=int, help="Record this one alone.")
@click.option("--birth", is_flag=True, help="Only a store that is just being made.")
@click.option("--point", type=int, help="With --seed or --birth: cut at this sync alone.")
@click.option(
    "--every",
    default=1,
    show_default=True,
    type=click.IntRange(1),
    help="Cut at each n-th sync, and at those for tasks that wait.",
)
@click.option(
    "--each", default=2, show_default=True, type=click.IntRange(1), help="Images of each style that has many."
)
@click.option(
    "--resume",
    default=25,
    show_default=True,
    type=click.IntRange(0),
    help="Go on with each n-th image; 0: with none.",
)
@click.option(
    "--again",
    default=100,
    show_default=True,
    type=click.IntRange(0),
    help="Cut the power again after each n-th image; 0: never.",
)
@click.option(
    "--keep", type=click.Path(path_type=Path), help="A folder for the images with which something is wrong."
)
@click.option(
    "--processes", default=1, show_default=True, type=click.IntRange(1), help="Processes to run in."
)
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
def main(  # click passes all by name
    *, seeds: int, first: int, one: int | None, birth: bool, point: int | None, every: int, each: int, resume: int, again: int, keep: Path | None,
    processes: int, as_json: bool,
) -> None:  # fmt: skip
    """Cut the power at every sync of the store's file.

    The exit code is 1 if an image is not as it must be, 2 if SQLite's writes cannot be recorded.
    """
    try:
        library()
    except ListeningError as error:
        raise click.UsageError(str(error)) from error
    how = Thoroughness(every=every, each=each, resume=resume, again=again)
    worlds = [BIRTH] if birth else [one] if one is not None else [BIRTH, *range(first, first + seeds)]
    if (point is not None or keep is not None) and len(worlds) > 1:
        raise click.UsageError("--point and --keep go with --seed N or --birth")
    tally, began = CutResults(), time.perf_counter()
    if len(worlds) == 1:
        tally.merge(_cut(worlds[0], how, point, keep))
    else:
        _all(tally, worlds, how, processes, as_json=as_json)
    seconds = time.perf_counter() - began
    if as_json:
        click.echo(json.dumps(_as_json(tally, seconds), indent=2))
    else:
        _report(tally, seconds)
    sys.exit(1 if tally.failed or (point is None and tally.lacking()) else 0)


def _all(
    tally: CutResults, worlds: Sequence[int], how: Thoroughness, processes: int, *, as_json: bool
) -> None:
    with bar("power cuts", len(worlds), quiet=as_json) as more:
        for part in spread(partial(_cut, how=how), worlds, processes):
            tally.merge(part)
            more(1, f"{tally.images.total()} images, {len(tally.failed)} findings")


def _as_json(tally: CutResults, seconds: float) -> dict[str, object]:
    return {
        "recordings": tally.recordings, "points": tally.points, "writes": tally.writes, "images": dict(tally.images),
        "syncs_of": dict(tally.syncs_of), "images_of": dict(tally.images_of), "resumed": tally.resumed, "again": tally.again, "ends": dict(tally.ends), "seconds": round(seconds, 2), "lacking": tally.lacking(),
        "failed": [{"image": str(each), "findings": each.findings, "replay": each.replay} for each in tally.failed],
    }  # fmt: skip


def _report(tally: CutResults, seconds: float) -> None:
    for failure in tally.failed[:_SHOWN]:
        click.echo(f"WRONG  {failure}\n  again: {failure.replay}")
    console = Console()
    table = Table(title="the disk after a power cut")
    for title in ("what was not synced", "images", "findings"):
        table.add_column(title, justify="left" if title.startswith("what") else "right")
    for style in STYLES:
        wrong = sum(failure.style.startswith(style) for failure in tally.failed)
        table.add_row(style, str(tally.images[style]), str(wrong))
    console.print(table)
    table = Table(title="what was under way")
    for title in ("operation", "syncs", "images", "findings"):
        table.add_column(title, justify="left" if title == "operation" else "right")
    for name in OPERATIONS:
        wrong = sum(name in failure.operations for failure in tally.failed)
        table.add_row(name, str(tally.syncs_of[name]), str(tally.images_of[name]), str(wrong))
    console.print(table)
    console.print(
        f"{tally.recordings} recordings, {tally.writes} writes, {tally.points} sync points, {tally.images.total()} images, "
        f"{len(tally.failed)} findings; the engine went on with {tally.resumed} of them, tasks {dict(tally.ends)}; {tally.again} images of second cuts; {seconds:.1f} s"
    )
    for text in tally.lacking():
        console.print(f"this run proves nothing: {text}")


if __name__ == "__main__":
    main()
