"""The environments of what makegood is compared with: one folder each under ``.bootstrap/bench``, never the project's own.

Each has the packages that are named here, pinned, so that two runs compare the same things; a changed line makes the folder
anew. What cannot be had raises ``MissingError`` with the reason, which the table then shows in place of figures.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".bootstrap/bench"
PATIENCE = 900.0
"""Seconds that an installation may take."""


class MissingError(Exception):
    """What is to be measured cannot be had here; says why."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What to install: from PyPI, from npm; and programs that must be there already."""

    python: tuple[str, ...] = ()
    npm: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()


ENVIRONMENTS: dict[str, Environment] = {
    "dbos": Environment(("dbos==3.4.0", "uvloop>=0.21")),
    "restate": Environment(
        ("restate-sdk==1.3.0", "granian", "aiohttp", "uvloop>=0.21"), ("@restatedev/restate-server@1.7.12",)
    ),
    "absurd": Environment(("absurd-sdk==0.5.1", "absurdctl==0.5.1", "psycopg[binary]>=3.2", "uvloop>=0.21")),
    "celery": Environment(
        ("celery==5.7.0", "redis>=5.2", "packaging", "uvloop>=0.21"), programs=("redis-server",)
    ),
    "celery-broker": Environment(("celery==5.7.0", "redis>=5.2", "packaging")),
    "faststream": Environment(("faststream[rabbit,redis,nats]==0.7.8",)),
    "procrastinate": Environment(("procrastinate==3.10.0", "psycopg[binary,pool]>=3.2", "uvloop>=0.21")),
    "prefect": Environment(("prefect==3.8.8", "fastapi==0.139.*")),
}
"""By the name of the peer."""


def interpreter(peer: str, folder: Path = FOLDER) -> Path:
    """Return the Python of the environment ``peer``, which is made first when it is not there. Raises ``MissingError``.

    A peer without an environment runs on the project's own Python: that is makegood, and the floor.
    """
    environment = ENVIRONMENTS.get(peer)
    if environment is None:
        return Path(sys.executable)
    for program in environment.programs:
        if shutil.which(program) is None:
            raise MissingError(f"the program {program} is not installed")
    place = folder / peer
    stamp, print_ = place / "made-from", _fingerprint(environment)
    python = place / "bin/python"
    if not (stamp.is_file() and stamp.read_text(encoding="utf-8") == print_ and python.exists()):
        shutil.rmtree(place, ignore_errors=True)
        _run(peer, sys.executable, "-m", "venv", "--without-pip", place)
        _run(
            peer, sys.executable, "-m", "pip", "--python", python, "install", "--quiet",
            "--disable-pip-version-check", *environment.python,
        )  # fmt: skip
        if environment.npm:
            npm = shutil.which("npm")
            if npm is None:
                raise MissingError("npm is not installed")
            _run(
                peer,
                npm,
                "install",
                "--prefix",
                place,
                "--no-audit",
                "--no-fund",
                "--silent",
                *environment.npm,
            )
        stamp.write_text(print_, encoding="utf-8")
    return python


def _fingerprint(environment: Environment) -> str:
    return hashlib.sha256(repr((environment, sys.version)).encode()).hexdigest()


def _run(peer: str, *command: str | Path) -> None:
    """Run one step of an installation; its last line is the reason when it fails."""
    quiet = {**os.environ, "PIP_NO_INPUT": "1", "PYTHONWARNINGS": "ignore"}
    try:
        process = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
            stdin=subprocess.DEVNULL,
            env=quiet,
        )
    except subprocess.TimeoutExpired:
        raise MissingError(f"installing {peer} took more than {PATIENCE:.0f} s") from None
    if process.returncode:
        lines = (process.stderr or process.stdout).strip().splitlines() or ["no reason given"]
        raise MissingError(f"{peer} could not be installed: {lines[-1][:200]}")
