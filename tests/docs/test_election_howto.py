"""The pages on leadership do what they say: their files are run as processes, their commands typed, their functions called."""

import ast
import asyncio
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from makegood.cli.commands.leader import run
from makegood.election import Election, LeadershipLostError, Term, open_leases
from makegood.election.stores.memory import MemoryLeases
from proofs.servers import LeaseServer, ServerKind

DOCS = Path(__file__).resolve().parents[2] / "docs"
ELECT = (DOCS / "build/elect-a-leader.md").read_text(encoding="utf-8")
CRON = (DOCS / "operate/cron-on-three-hosts.md").read_text(encoding="utf-8")
CONCEPT = (DOCS / "learn/leadership.md").read_text(encoding="utf-8")
SQLITE = "sqlite:///leases.db"


def blocks(page: str, language: str) -> list[str]:
    """Return the blocks of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def block(page: str, has: str) -> str:
    """Return the one Python block that has this in it."""
    (content,) = [text for text in blocks(page, "python") if has in text]
    return content


@contextmanager
def started(folder: Path, source: str) -> Iterator["subprocess.Popen[str]"]:
    """Run a file of the page as a process; kill it in the end."""
    (folder / "elect.py").write_text(source, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, "elect.py"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: "subprocess.Popen[str]") -> str:
    """Return the next line that a process prints; the test's own limit ends the waiting."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def leads(folder: Path, source: str) -> None:
    """It leads, and ends in good order when it is told to."""
    with started(folder, source) as one:
        assert first_line(one) == "epoch 1: at work"
        one.send_signal(signal.SIGTERM)
        assert one.wait(120) == 0, one.communicate()[1]


@pytest.mark.parametrize("has", ["elect.py", "# blocking.py"])
def test_ctrl_c_ends_the_lines_without_a_word_and_gives_the_lease_back(tmp_path: Path, has: str) -> None:
    with started(tmp_path, block(ELECT, has)) as one:
        assert first_line(one) == "epoch 1: at work"
        one.send_signal(signal.SIGINT)
        assert (one.wait(120), one.communicate()[1]) == (0, "")
    assert "released" in typed(tmp_path, f"makegood leader reports --store {SQLITE} --past")


def test_a_dozen_lines_elect_a_leader_and_the_next_one(tmp_path: Path) -> None:
    source = block(ELECT, "elect.py")
    code = [line for line in source.splitlines() if line.strip() and not line.startswith("#")]
    assert len(code) <= 12, "a dozen lines, it says"
    assert SQLITE in source
    source = source.replace('"15s"', '"6s"')
    with started(tmp_path, source) as before:
        assert first_line(before) == "epoch 1: at work"
        with started(tmp_path, source) as after:
            before.send_signal(signal.SIGTERM)
            assert before.wait(120) == 0, before.communicate()[1]
            assert first_line(after) == "epoch 2: at work"
    output = typed(tmp_path, "".join(blocks(ELECT, "sh")))
    assert re.search(r"\b2\b.*\n.*\b1\b.*released", output), output


def test_the_blocking_lines_do_the_same(tmp_path: Path) -> None:
    leads(tmp_path, block(ELECT, "# blocking.py").replace('"15s"', '"6s"'))


def test_the_lines_for_postgresql_elect_a_leader_there(tmp_path: Path, database: str) -> None:
    url = ast.literal_eval(block(ELECT, 'open_leases("postgresql://').strip().removeprefix("open_leases"))
    assert url.startswith("postgresql://user:password@")
    leads(tmp_path, block(ELECT, "elect.py").replace(SQLITE, database).replace('"15s"', '"6s"'))


async def test_the_line_for_azure_opens_leases_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line as it stands; nothing is asked of Azure before the first call."""
    monkeypatch.setenv("AZURE_STORAGE_KEY", "a2V5")
    azure = pytest.importorskip("makegood.election.stores.azure")
    line = block(ELECT, 'open_leases("azure-blob://').strip()
    leases = open_leases(ast.literal_eval(line.removeprefix("open_leases")))
    assert isinstance(leases, azure.AzureLeases)
    await leases.close()


def test_the_lines_elect_a_leader_on_azurite(
    tmp_path: Path, lease_server: Callable[[ServerKind], LeaseServer]
) -> None:
    leads(tmp_path, block(ELECT, "elect.py").replace(SQLITE, lease_server("azurite").url))


def module(folder: Path, source: str) -> Any:
    """Import what is on a page."""
    file = folder / "page.py"
    file.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("page", file)
    assert spec is not None
    assert spec.loader is not None
    new_module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(new_module)
    return new_module


async def test_the_guard_keeps_a_late_write_out(tmp_path: Path, database: str) -> None:
    """The function of the page, in a term and after it."""
    make_report = module(tmp_path, block(ELECT, "term.guard")).make_report
    connection = await asyncpg.connect(database)
    try:
        await connection.execute("create table report (text text)")
        async with open_leases(database) as leases:
            terms = Election("reports", leases, me="a").terms()
            term = await anext(terms)
            async with term:
                await make_report(term, connection)
            await terms.aclose()
            with pytest.raises(LeadershipLostError):
                await make_report(term, connection)
        assert await connection.fetchval("select count(*) from report") == 1
    finally:
        await connection.close()


async def test_the_concept_s_functions_elect(tmp_path: Path) -> None:
    """With the addresses of this machine in the place of three hosts."""
    page = module(tmp_path, "\n".join(blocks(CONCEPT, "python")))
    with socket.socket() as port:
        port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port.bind(("127.0.0.1", 0))
        page.HOSTS.clear()
        page.HOSTS["host-1"] = f"127.0.0.1:{port.getsockname()[1]}"
        leadership = asyncio.Event()
        candidate: Election = page.candidate("host-1", MemoryLeases())

        async def lead(term: Term) -> None:
            leadership.set()

        task = asyncio.ensure_future(candidate.run(lead, signals=False))
        async with asyncio.timeout(60):
            await leadership.wait()
        candidate.stop()
        await task


def typed(folder: Path, lines: str) -> str:
    """Type lines into a shell in which ``makegood`` is ours; return what they print."""
    tools = folder / "bin"
    if not tools.exists():
        tools.mkdir()
        (tools / "makegood").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m makegood "$@"\n')
        (tools / "makegood").chmod(0o755)
    environ = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    shell = shutil.which("sh")
    assert shell is not None
    ran = subprocess.run(
        [shell, "-e", "-c", lines], cwd=folder, env=environ, capture_output=True, text=True, timeout=100, check=False
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_three_that_contend_at_the_same_minute_run_the_command_once(tmp_path: Path) -> None:
    """However far apart a busy machine starts them: here the one that leads goes on until two have given up."""
    contend, look = blocks(CRON, "sh")
    waits = """done.txt; until [ "$(wc -l < lost.txt)" = 2 ]; do sleep 0.1; done'"""
    lines = re.sub(r"^(makegood .*) &$", r"( \1 || echo $? >> lost.txt ) &", contend, flags=re.MULTILINE)
    (tmp_path / "lost.txt").touch()
    output = typed(
        tmp_path, lines.replace("done.txt'", waits).replace("--keep-lease 3s", "--keep-lease 0.1s")
    )
    assert output.strip() == "epoch 1"
    assert (tmp_path / "lost.txt").read_text().split() == ["7", "7"]
    assert "released" in typed(tmp_path, look)


def test_the_options_in_the_crontab_and_the_unit_are_options_of_the_command() -> None:
    options = {option for parameter in run.params for option in parameter.opts}
    (crontab,), (unit,) = blocks(CRON, "text"), blocks(CRON, "ini")
    for text in (crontab, unit):
        flags = set(re.findall(r"--[a-z-]+", text.partition("election run")[2].partition(" -- ")[0]))
        assert len(flags) >= 3
        assert flags <= options


def test_the_concept_opens_with_what_a_lease_does_not_give() -> None:
    assert CONCEPT.splitlines()[2].startswith("**A lease does not give mutual exclusion at the resource.**")
