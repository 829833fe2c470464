"""A customer in a process of its own, who is asked for consent and answers with signals.

``python -m examples.chaos.approver --store URL --folder FOLDER --number N --of M``

It reads in a file of the folder which orders ask, and takes each M-th. The order's place in the file decides how its customer
answers: at once, before anything waits; when asked; around the end of the time; after the task has ended; twice, under one id and
under two; never. Its id decides when, and whether by the order's key or the task's id. A signal that is not acknowledged is sent again under its id, and so is, after a
SIGKILL, every one of which the customer's own notes do not say that it was. What is acknowledged is noted, and never forgotten.
"""

import argparse
import asyncio
import json
import logging
import random
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO

from makegood import Client, SignalRefused, StoreUnavailableError, WaitExpiredError

from .orders import CONSENT_WITHIN, Consent, approved, consent, countersigned

QUESTIONS: Final = "questions.jsonl"
"""The file with the orders that ask."""
NOTES: Final = "answers-{}.jsonl"
"""The file of each customer's notes."""
READ_EVERY: Final = 0.05
PAUSE: Final = 0.2
AT_ONCE: Final = 8
"""Signals that a customer has under way."""
LONGEST: Final = 20.0
"""Seconds after which a late answer is sent although its task has not ended."""
CASES: Final = random.Random("cases").sample(
    ("early", "soon", "edge", "late", "one id", "two ids", "never"), 20, counts=(3, 5, 3, 2, 2, 3, 2)
)
"""How customers answer, one after another: by lot, a short run might lack the two of twenty who are late."""
WORKFLOWS: Final[Mapping[str, Any]] = {workflow.name: workflow for workflow in (approved, countersigned)}

log = logging.getLogger("chaos.approver")


@dataclass(frozen=True, slots=True)
class Answer:
    """A signal to send: ``wait`` seconds after the order was seen, under ``id``, by the order's key or by the task's id."""

    id: str
    wait: float
    by_key: bool
    is_late: bool = False
    """Whether it waits for the end of its task, too."""


def answers(order: str, number: int, delay: float) -> list[Answer]:
    """Return how the customer of the n-th order that asks answers: the same for the same order.

    ``delay``: seconds after which the order begins.
    """
    rng = random.Random(f"answers to {order}")
    early, soon = rng.uniform(0.0, 0.1), delay + rng.uniform(0.6, 2.0)
    edge = delay + CONSENT_WITHIN + rng.uniform(-0.2, 0.8)
    late = delay + CONSENT_WITHIN + rng.uniform(2.0, 4.0)
    case = CASES[number % len(CASES)]
    match case:
        case "early":
            plan = [(1, early)]
        case "soon":
            plan = [(1, soon)]
        case "edge":
            plan = [(1, edge)]
        case "late":
            plan = [(1, late)]
        case "one id":
            plan = [(1, soon), (1, soon + rng.uniform(0.0, 1.0))]
        case "two ids":
            plan = [(1, soon), (2, soon + rng.uniform(0.0, 2.0))]
        case _:
            plan = []
    return [Answer(f"{order}-{n}", wait, rng.random() < 0.5, is_late=case == "late") for n, wait in plan]


class ConsentingCustomer:
    """One customer."""

    def __init__(self, client: Client, folder: Path, number: int, count: int) -> None:
        self._client = client
        self._questions = folder / QUESTIONS
        self._number = number
        self._count = count
        path = folder / NOTES.format(number)
        self._settled_orders = {note["order"] for note in read_lines(path) if note["kind"] == "settled"}
        self._notes = open_notes(path)
        self._gate = asyncio.Semaphore(AT_ONCE)

    async def run(self) -> None:
        """Answer every order that asks, until cancelled."""
        count, offset = 0, 0
        async with asyncio.TaskGroup() as group:
            while True:
                questions, offset = read_on(self._questions, offset)
                for number, question in enumerate(questions, count):
                    if number % self._count == self._number and question["order"] not in self._settled_orders:
                        group.create_task(self._answer(question, number))
                count += len(questions)
                await asyncio.sleep(READ_EVERY)

    async def _answer(self, question: Mapping[str, Any], number: int) -> None:
        start = time.monotonic()
        for answer in answers(question["order"], number, question["delay"]):
            await asyncio.sleep(max(0.0, start + answer.wait - time.monotonic()))
            if answer.is_late:
                with suppress(WaitExpiredError, StoreUnavailableError):
                    await self._client.task(question["task"]).wait(timeout=LONGEST)
            async with self._gate:
                await self._send(question, answer)
        self._note("settled", question)

    async def _send(self, question: Mapping[str, Any], answer: Answer) -> None:
        """Send a signal until it is acknowledged, or refused because the task has ended."""
        begin = time.time()
        to, options = question["task"], {"id": answer.id}
        if answer.by_key:
            to, options = WORKFLOWS[question["workflow"]], {"id": answer.id, "key": question["order"]}
        while True:
            try:
                receipt = await self._client.signal(to, consent, Consent(answer.id), **options)
            except StoreUnavailableError:
                self._note("unanswered", question, id=answer.id)
                await asyncio.sleep(PAUSE)
            except SignalRefused as refusal:
                self._note("refused", question, id=answer.id, text=str(refusal))
                return
            else:
                self._note(
                    "signal", question, id=answer.id, begin=begin, end=time.time(), by_key=answer.by_key,
                    created=receipt.created, conflict=receipt.conflict,
                )  # fmt: skip
                return

    def _note(self, kind: str, question: Mapping[str, Any], **facts: object) -> None:
        line = {"kind": kind, "order": question["order"], "task": question["task"], **facts}
        self._notes.write(json.dumps(line) + "\n")
        self._notes.flush()


def open_notes(path: Path) -> TextIO:
    """Open a file to write on; a line in which its last writer was killed stays alone."""
    is_whole = not path.exists() or path.read_bytes()[-1:] in (b"", b"\n")
    file = path.open("a", encoding="utf-8")
    if not is_whole:
        file.write("\n")
    return file


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a file; one that is being written, or in which its writer was killed, is left out."""
    return read_on(path, 0)[0]


def read_on(path: Path, offset: int) -> tuple[list[dict[str, Any]], int]:
    """Return the whole lines of a file behind an offset in bytes, as ``read_lines`` does, and the offset behind them."""
    if not path.exists():
        return [], offset
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read()
    data = data[: data.rfind(b"\n") + 1]
    lines = []
    for text in data.splitlines():
        try:
            lines.append(json.loads(text))
        except ValueError:
            log.warning("not a whole line: %r", text)
    return lines, offset + len(data)


def notes(folder: Path) -> list[dict[str, Any]]:
    """Return the notes of all customers of a run."""
    return [note for path in sorted(folder.glob(NOTES.format("*"))) for note in read_lines(path)]


async def live(options: argparse.Namespace) -> None:
    """Answer until SIGTERM."""
    loop, end = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, end.set)
    while True:
        try:
            async with Client(options.store) as client:
                answering = loop.create_task(
                    ConsentingCustomer(client, options.folder, options.number, options.of).run()
                )
                ending = loop.create_task(end.wait())
                await asyncio.wait({answering, ending}, return_when=asyncio.FIRST_COMPLETED)
                for task in (answering, ending):
                    task.cancel()
                await asyncio.gather(ending, return_exceptions=True)
                try:
                    await answering
                except asyncio.CancelledError:
                    return
        except StoreUnavailableError as error:
            log.warning("the store is away: %s", error)
            if end.is_set():
                return
            await asyncio.sleep(PAUSE)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.chaos.approver")
    parser.add_argument("--store", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--number", type=int, required=True)
    parser.add_argument("--of", type=int, required=True)
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    asyncio.run(live(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
