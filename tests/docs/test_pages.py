"""The pages are whole: links lead somewhere, code parses, and what they say of ``make`` is so."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import click
import pytest

from makegood.cli import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)#\s]+)(?:#([^)\s]*))?\)")
TYPED = re.compile(r"^```(?:sh|console)\b[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:\$ |[A-Z]+=\$\()?(makegood .*?)\)?$", re.MULTILINE)
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def name_of(page: Path) -> str:
    """Name a case by its page."""
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link names a file of the project."""
    links = [match[1] for match in LINK.finditer(page.read_text(encoding="utf-8"))]
    assert not [link for link in links if "://" not in link and not (page.parent / link).exists()]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_anchors_are_headings(page: Path) -> None:
    """The part of a link after ``#`` names a heading of the page that it leads to."""
    for file, anchor in re.findall(r"\]\(([^)#\s]*\.md)?#([^)\s]+)\)", page.read_text(encoding="utf-8")):
        assert anchor in anchors(page.parent / file if file else page), f"{file}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_in_pages_parses(page: Path) -> None:
    """Every Python block is a program: it compiles, which `ast.parse` alone does not show."""
    for block in PYTHON.findall(page.read_text(encoding="utf-8")):
        inside = block.startswith("await ")  # lines for the function above them
        compile("async def f():\n" + indent(block, "    ") if inside else block, page.name, "exec")


RUN_BY = {
    "README.md": "test_readme",
    "docs/build/elect-a-leader.md": "test_election_howto",
    "docs/build/encrypt-payloads.md": "test_encryption_howto",
    "docs/build/get-notified-of-task-states.md": "test_messages_howto",
    "docs/build/migrate-from-celery.md": "test_migration_pages",
    "docs/build/migrate-from-dbos.md": "test_migration_pages",
    "docs/build/migrate-from-temporal.md": "test_migration_pages",
    "docs/build/orders-from-nats.md": "test_nats_and_redis_howtos",
    "docs/build/orders-from-redis-streams.md": "test_nats_and_redis_howtos",
    "docs/build/rate-limits-and-circuit-breakers.md": "test_breaker_howto",
    "docs/build/orders-from-rabbitmq.md": "test_rabbitmq_howto",
    "docs/build/submit-by-message.md": "test_messages_howto",
    "docs/build/submit-in-your-transaction.md": "test_transaction_howto",
    "docs/build/test-your-workflow.md": "test_proof_howto",
    "docs/build/write-actions-and-undos.md": "test_declare_howto",
    "docs/internals/write-a-test.md": "test_write_a_test_page",
    "docs/learn/leadership.md": "test_election_howto",
    "docs/operate/deploy-new-code.md": "test_change_howto",
    "docs/operate/monitor.md": "test_monitor_pages",
    "docs/operate/operate-tasks.md": "test_operate_howto",
    "docs/operate/sharding.md": "test_scale_page",
    "docs/reference/declare.md": "test_declare_reference",
    "docs/reference/election.md": "test_election_reference",
    "docs/start/quickstart.md": "test_quickstart",
    "docs/start/tutorial.md": "test_tutorial",
}
"""The tests that run the Python of a page; recipes have ``test_recipes_page``. What is on no page here runs below."""
OF_ANY_LENGTH = re.compile(r"^```python[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
WITH_PYTHON = [page for page in PAGES if OF_ANY_LENGTH.search(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(
    "page",
    [page for page in WITH_PYTHON if name_of(page) not in RUN_BY and page.parent.name != "recipes"],
    ids=name_of,
)
def test_python_without_a_test_of_its_own_runs(page: Path, tmp_path: Path) -> None:
    """As one module, from top to bottom."""
    module = "\n".join(OF_ANY_LENGTH.findall(page.read_text(encoding="utf-8")))
    (tmp_path / "page.py").write_text(module, encoding="utf-8")
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
    run = subprocess.run(
        [sys.executable, "page.py"],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr


def test_who_runs_a_page_names_it() -> None:
    """The table names pages with Python, and tests that read them."""
    assert set(RUN_BY) <= {name_of(page) for page in WITH_PYTHON}
    for page, test in RUN_BY.items():
        text = (ROOT / f"tests/docs/{test}.py").read_text(encoding="utf-8")
        stem = Path(page).stem
        assert stem in text or (
            stem.startswith("migrate-from-") and stem.removeprefix("migrate-from-") in text
        ), page


def understood(line: str) -> None:
    """Raise ``UsageError`` for a command that the command line does not take."""
    words = shlex.split(line, comments=True)[1:]
    for mark in ("||", "|", "&"):
        words = words[: words.index(mark)] if mark in words else words
    context = click.Context(main)
    command: click.Command | None = main
    while isinstance(command, click.Group):
        name = words.pop(0)
        command = command.get_command(context, name)
        assert command is not None, f"{line}: there is no {name}"
        context = command.make_context(name, list(words), parent=context)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_in_pages_are_commands(page: Path) -> None:
    """Every line that is typed has a command, options and arguments that there are."""
    for block in TYPED.findall(page.read_text(encoding="utf-8")):
        for line in COMMAND.findall(block):
            understood(line)


def test_readme_names_targets_that_exist() -> None:
    """Each ``make target`` in README and CONTRIBUTING is a target of the Makefile, with a line in its help."""
    targets = set(
        re.findall(r"^([a-z.-]+):[^#\n]*##", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    pages = (ROOT / "README.md").read_text(encoding="utf-8") + (ROOT / "CONTRIBUTING.md").read_text(
        encoding="utf-8"
    )
    names = set(re.findall(r"(?:`|^)make ([a-z.-]+)", pages, re.MULTILINE))
    assert {"demo", "test"} <= names
    assert names <= targets, f"no such target: {names - targets}"


def test_ci_runs_what_the_readme_says() -> None:
    """CI runs the README's test command, not one of its own."""
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    assert re.search(r"^make test\nexec make proof$", script, re.MULTILINE)
    assert re.search(r"^make test", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
