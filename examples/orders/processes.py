"""The process wall: which processes stand where, and the means to kill, stop, continue and replace them.

A *post* is a place that is always to be filled, such as ``scheduler-2``; processes come and go in it. No process outlives
the one that started it: see ``tether.py``. Leaving the wall as a context manager ends them all.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from .world import PACKAGE, ROOT

SETTINGS_PREFIX: Final = "MAKEGOOD_"
REPORT: Final = "audit.json"
"""Where the auditor's report is, in the folder of a run."""
SERVICES: Final = ("stock", "payments", "carrier")
REGISTERED: Final = ("scheduler", "supervisor", "agent", "inbox")
"""The roles whose processes register in the store."""


class State(StrEnum):
    """How it stands with a post."""

    RUNNING = "running"
    STOPPED = "stopped"
    KILLED = "killed"
    ENDED = "ended"


class ProcessError(Exception):
    """A process ended that should run. The message holds the last lines that it wrote."""


@dataclass(frozen=True, slots=True)
class Post:
    """A place to be filled: ``arguments`` follow ``python -m`` and the module."""

    name: str
    role: str
    arguments: tuple[str, ...]
    module: str = "makegood"


@dataclass(slots=True)
class Place:
    """A post, and who fills it. ``since`` is when the state began, in seconds of ``time.monotonic``."""

    name: str
    role: str
    pid: int = 0
    state: State = State.ENDED
    since: float = 0.0
    starts: int = 0
    kills: int = 0
    stops: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def turn(self, state: State) -> None:
        """Note the new state and when it began."""
        self.state, self.since = state, time.monotonic()


class Wall:
    """The wall. ``folder`` takes the logs; ``settings`` are makegood's, such as ``{"lease": "2s"}``; ``more`` is further
    environment.
    """

    def __init__(
        self, posts: Iterable[Post], folder: Path, *, settings: Mapping[str, str], more: Mapping[str, str]
    ) -> None:
        self._posts = {post.name: post for post in posts}
        self.places = {post.name: Place(post.name, post.role) for post in self._posts.values()}
        self._folder = folder
        self._environment = environment(os.environ, settings, more)

    def start(self, name: str) -> int:
        """Fill an empty post with a new process; return its pid. From the main thread only: see ``tether.py``."""
        place = self.places[name]
        post = self._posts[name]
        arguments = [post.module, *post.arguments]
        environment = self._environment | {f"{SETTINGS_PREFIX}NAME": name}
        place.process = tethered(arguments, self.log(name), environment)
        place.pid = place.process.pid
        place.starts += 1
        place.turn(State.RUNNING)
        return place.pid

    def kill(self, name: str) -> None:
        """End the process with SIGKILL: no last words."""
        place = self.places[name]
        if place.process is not None:
            place.process.kill()
            place.kills += 1
            self._reap(place)
            place.turn(State.KILLED)

    def stop(self, name: str) -> None:
        """Stop the process with SIGSTOP: it does not know that time passes."""
        place = self.places[name]
        if place.process is not None and place.state is State.RUNNING:
            place.process.send_signal(signal.SIGSTOP)  # not by its number: that may be another's by now
            place.stops += 1
            place.turn(State.STOPPED)

    def resume(self, name: str) -> None:
        """Let a stopped process go on."""
        place = self.places[name]
        if place.process is not None and place.state is State.STOPPED:
            place.process.send_signal(signal.SIGCONT)
            place.turn(State.RUNNING)

    def ended(self) -> list[tuple[Place, int]]:
        """Return the places whose process ended of itself since the last look, with its exit code."""
        exits = []
        for place in self.places.values():
            if place.process is not None and (code := place.process.poll()) is not None:
                self._reap(place)
                place.turn(State.ENDED)
                exits.append((place, code))
        return exits

    def running(self, role: str) -> list[Place]:
        """Return the places of a role whose process runs, those longest in their state first."""
        places = (p for p in self.places.values() if p.role == role and p.state is State.RUNNING)
        return sorted(places, key=lambda place: place.since)

    def log(self, name: str) -> Path:
        """Return the file that a post's processes write to."""
        return self._folder / f"{name}.log"

    def last_words(self, name: str) -> str:
        """Return the end of a post's log."""
        log = self.log(name)
        return log.read_text(errors="replace")[-2000:].strip() if log.exists() else ""

    def late(self, names: Sequence[str], seconds: float) -> ProcessError:
        """Return the error for processes of which none has registered for so many ``seconds``."""
        words = self.last_words(names[0])
        why = f"The log of {names[0]} ends with:\n{words}" if words else f"The log of {names[0]} is empty."
        return ProcessError(
            f"{', '.join(names)} did not start, and no other process has for {seconds:g} s. A busy machine starts them "
            f"slowly: run it again when the machine is idle. {why}"
        )

    def end(self, patience: float = 10.0) -> list[str]:
        """End all in good order (SIGTERM), and those that take more than ``patience`` seconds with SIGKILL.

        Returns the names of the latter.
        """
        places = [place for place in self.places.values() if place.process is not None]
        for place in places:
            self.resume(place.name)
            if place.process is not None:
                place.process.terminate()
        deadline = time.monotonic() + patience
        late = []
        for place in places:
            if place.process is not None:
                try:
                    place.process.wait(max(0.0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    late.append(place.name)
                    place.process.kill()
                self._reap(place)
                place.turn(State.ENDED)
        return late

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every process at once; call ``end`` before for good order."""
        places = [place for place in self.places.values() if place.process is not None]
        for place in places:
            if place.process is not None:
                place.process.kill()
        for place in places:
            self._reap(place)
            place.turn(State.ENDED)

    @staticmethod
    def _reap(place: Place) -> None:
        """Wait for a process that has been told to end, and let go of what we hold of it."""
        if place.process is not None:
            place.process.wait()
            if place.process.stdin is not None:
                place.process.stdin.close()
            place.process = None


def tethered(arguments: Sequence[str], log: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start ``python -m`` with these arguments, in a process group of its own, to end when this process does.

    What it writes goes to ``log``, in whose folder it runs. From the main thread only: see ``tether.py``.
    """
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", f"{PACKAGE}.tether", *arguments],
            cwd=log.parent,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=environment,
            process_group=0,
        )


@contextmanager
def private_postgres(folder: Path, patience: float = 60.0) -> Iterator[str]:
    """Run a PostgreSQL server of our own; yield its URL. It ends, and its files go, when we leave or end in any way.

    Raises ``ProcessError`` with what it said when it does not start within ``patience`` seconds.
    """
    ready, log = folder / "postgres.url", folder / "postgres.log"
    arguments = ["--gently", f"{PACKAGE}.temporary_postgres", "--serve", "--ready-file", str(ready)]
    process = tethered(arguments, log, environment(os.environ, {}, {}))
    try:
        deadline = time.monotonic() + patience
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise ProcessError(f"no private PostgreSQL: {log.read_text(errors='replace').strip()}")
            time.sleep(0.05)
        yield ready.read_text().strip()
    finally:
        process.terminate()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()


def environment(
    outside: Mapping[str, str], settings: Mapping[str, str], more: Mapping[str, str]
) -> dict[str, str]:
    """Return what the wall's processes find in their environment.

    Settings of the person who runs the demo are left out: the demo is the same for everybody.
    """
    inside = {name: value for name, value in outside.items() if not name.startswith(SETTINGS_PREFIX)}
    inside |= {SETTINGS_PREFIX + name.upper(): value for name, value in settings.items()}
    path = [str(ROOT), *filter(None, [outside.get("PYTHONPATH", "")])]
    return inside | {"PYTHONPATH": os.pathsep.join(path), "PYTHONUNBUFFERED": "1"} | dict(more)


def posts(*, schedulers: int = 2, agents: int | None = 3, supervisors: int = 2) -> list[Post]:
    """Return the posts that makegood fills; their store is in the environment, which no list of processes shows.

    ``agents``: two processes that serve all three services, and further ones one each; None is two for each service.
    """
    specifications: list[tuple[str, str, Sequence[str]]] = []
    specifications += [("scheduler", f"scheduler-{n}", ()) for n in range(1, schedulers + 1)]
    specifications += [("supervisor", f"supervisor-{n}", ()) for n in range(1, supervisors + 1)]
    shop = f"{PACKAGE}.shop:shop"
    if agents is None:
        specifications += [("agent", f"{one}-{n}", (shop, one)) for one in SERVICES for n in (1, 2)]
    for n in range(1, (agents or 0) + 1):
        options = SERVICES if n <= 2 else (SERVICES[(n - 2) % len(SERVICES)],)
        specifications.append(("agent", f"agent-{n}", (shop, *options)))
    return [Post(name, role, (role, *more)) for role, name, more in specifications]


def shop_posts(folder: Path, queue: str, seed: int) -> list[Post]:
    """Return the posts of the shop: the submission process, the shop that sends it orders, and who approves the large ones;
    ``queue`` is the shop's own.
    """
    shop = ("--folder", str(folder), "--queue", queue)
    desk = ("--folder", str(folder), "--seed", str(seed))
    return [
        Post("inbox-1", "inbox", ("inbox", f"{PACKAGE}.shop:shop")),
        Post("shop", "shop", shop, f"{PACKAGE}.storefront"),
        Post("approver", "approver", desk, f"{PACKAGE}.approver"),
    ]


def watching_posts(folder: Path, books: Path, port: int) -> list[Post]:
    """Return the posts that watch: the console on a port of 127.0.0.1, and the auditor."""
    read = ("--books", str(books), "--outcomes", str(folder / "answers.jsonl"))
    return [
        Post("console", "console", ("console", "--console", f"127.0.0.1:{port}")),
        Post("auditor", "auditor", (*read, "--live", str(folder / REPORT)), f"{PACKAGE}.auditor"),
    ]
