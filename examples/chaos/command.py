"""The command: ``python -m examples.chaos``."""

import argparse
import asyncio
import logging
import random
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from examples.orders.auditor import AuditError
from examples.orders.demo import ended_as_by_hand
from examples.orders.processes import ProcessError
from examples.orders.world import ServicesError
from makegood.errors import MakegoodError

from .broker import RIGS
from .checker import examine
from .play import Play, Wishes
from .screen import screen

RATE: Final = 6.0
LEAST: Final = 10.0
"""Seconds below which not every kind of fault finds its time."""
LOG_FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
INTERRUPTED: Final = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the storm; return the exit code: 0 all is well, 1 something is wrong or nothing was proved, 130 interrupted."""
    options = parse(arguments)
    if options.audit is not None:
        return audited(options.audit)
    display = screen(as_json=options.json)
    folder = Path(tempfile.mkdtemp(prefix="makegood-chaos-"))
    where = f"{options.store} with {options.broker}" if options.broker else options.store
    display.note(f"chaos on {where} for {options.seconds:g} s, SEED={options.seed}; logs in {folder}")
    logging.basicConfig(filename=folder / "customers.log", level="INFO", format=LOG_FORMAT)
    wishes = Wishes(options.store, options.seconds, options.seed, options.rate, options.broker)
    code = 1
    try:
        with ended_as_by_hand():
            report = asyncio.run(Play(wishes, folder, display).run())
        display.report(report)
        code = 0 if report.well else 1
    except (ProcessError, ServicesError, AuditError, MakegoodError) as trouble:
        display.close()
        print(f"chaos: {trouble}", file=sys.stderr)
    except KeyboardInterrupt:
        display.close()
        code = INTERRUPTED
        print("chaos: interrupted; every process that it started has ended", file=sys.stderr)
    finally:
        display.close()
        if options.keep or code == 1:
            display.note(f"the logs and books of this run are in {folder}")
        else:
            shutil.rmtree(folder)
    return code


def audited(folder: Path) -> int:
    """Check the folder of an earlier run again; return the exit code."""
    try:
        verdict = examine(folder)
    except AuditError as error:
        print(f"chaos: {error}", file=sys.stderr)
        return 2
    print("\n".join([*verdict.audit.lines(), *(f"CONTRADICTION  {text}" for text in verdict.contradictions)]))
    return 1 if verdict.findings else 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; exits with 2 for what cannot be meant."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.chaos",
        description="The order example under every fault, with real processes.",
    )
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite", help="on which store")
    parser.add_argument(
        "--broker", choices=("none", *RIGS), default="none", help="some orders come through a broker (none)"
    )
    parser.add_argument(
        "--seconds", type=_seconds, default=60.0, metavar="N", help="how long the faults last (60)"
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="what is ordered and what falls when; default: chance"
    )
    parser.add_argument(
        "--rate", type=float, default=RATE, metavar="N", help=f"orders a second ({RATE:g}), of all customers"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per line, the report last")
    parser.add_argument("--keep", action="store_true", help="keep the folder with store, books and logs")
    parser.add_argument("--audit", type=Path, metavar="FOLDER", help="only check a folder that was kept")
    options = parser.parse_args(arguments)
    if options.broker == "none":
        options.broker = ""
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1_000_000)
    return options


def _seconds(text: str) -> float:
    value = float(text)
    if not value >= LEAST:
        raise argparse.ArgumentTypeError(f"{text}: at least {LEAST:g}")
    return value
