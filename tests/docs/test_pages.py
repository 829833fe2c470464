"""The pages are whole: links lead somewhere, code parses, and what they say of ``make`` is so."""

import re
import shlex
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
    named = set(re.findall(r"(?:`|^)make ([a-z.-]+)", pages, re.MULTILINE))
    assert {"demo", "test"} <= named
    assert named <= targets, f"no such target: {named - targets}"


def test_ci_runs_what_the_readme_says() -> None:
    """CI runs the README's test command, not one of its own."""
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    assert re.search(r"^make test\nexec make proof$", script, re.MULTILINE)
    assert re.search(r"^make test", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
