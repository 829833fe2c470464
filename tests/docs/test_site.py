"""The documentation site: it builds without a warning, and its reference has every public name."""

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sphinx.util.inventory import InventoryFile

import makegood as mg
from scripts.site import api, fields, pages

LINK = re.compile(r'(?:href|src)="([^"#:]+)(?:#[^"]*)?"')


def test_each_public_name_has_one_place_in_the_reference() -> None:
    places = [name for names in api.groups().values() for name in names]
    assert sorted(places) == sorted(mg.__all__)


def test_each_member_that_the_reference_shows_is_explained_on_a_page() -> None:
    """What makegood itself asks of a class begins with an underscore."""
    text = "\n".join(
        page.read_text(encoding="utf-8")
        for folder in ("reference", "build", "operate", "learn")
        for page in (pages.DOCS / folder).rglob("*.md")
    )
    code = re.findall(r"`[^`\n]+`", text) + re.findall(r"^```.*?^```", text, re.MULTILINE | re.DOTALL)
    words = set(re.findall(r"\w+", " ".join(code)))
    left: set[str] = set()
    for module in ("makegood", "makegood.election", "makegood.testing"):
        for name in api.exported(module):
            one = getattr(importlib.import_module(module), name)
            if not inspect.isclass(one) or issubclass(one, BaseException):
                continue
            if module != "makegood.testing":  # its docstrings are the page
                members = {
                    member for member in dir(one) if not member.startswith("_") and not hasattr(tuple, member)
                }
                left |= {f"{name}.{member}" for member in members - words}
    assert not left, (
        "explain them in docs/reference; or begin them with an underscore, and list those that other modules use in pyproject.toml, "
        f"flake8-self: {left}"
    )


def test_prose_of_a_docstring_becomes_fields() -> None:
    """Parameters, results and errors, each in its list; the rest of the prose and its code stay."""
    lines = inspect.cleandoc("""Send it, such as this::

        ``to``: a queue; ``tries`` is the number of tries. Not in the list. Returns its id. Raises ``A`` or ``B`` if
        it is full, and ``C`` when closed.

            send("queue:web")
        """).splitlines()
    assert fields.split(lines, ["to", "tries"]) == [
        "Send it, such as this:", "", ".. code-block:: python", "", '    send("queue:web")', "",
        ":param to: a queue", ":param tries: the number of tries. Not in the list.", ":returns: its id.",
        ":raises A: if it is full", ":raises B: if it is full", ":raises C: when closed.",
    ]  # fmt: skip
    submit = fields.split(
        (inspect.getdoc(mg.Client.submit) or "").splitlines(),
        [*inspect.signature(mg.Client.submit).parameters],
    )
    assert {line.split(":")[1] for line in submit if line.startswith(":param")} == {
        f"param {name}"
        for name in (
            "workflow",
            "key",
            "priority",
            "correlation_id",
            "reply_to",
            "delay",
            "at",
            "attributes",
            "lane",
            "connection",
        )
    }


def test_each_page_is_in_the_table_of_contents() -> None:
    """From the home page every page is reached, once."""
    reachable, open_ = [pages.DOCS / "index.md"], [pages.DOCS / "index.md"]
    while open_:
        page = open_.pop()
        if page.name not in {"README.md", "index.md"}:
            continue
        below = [page.parent / name.replace("index.md", "README.md") for name in pages.contents(page)]
        reachable += [each.resolve() for each in below]
        open_ += [each.resolve() for each in below]
    assert sorted(reachable) == sorted(pages.pages())


def test_the_outline_names_every_section_and_what_its_pages_are_about() -> None:
    text = "\n".join(pages.outline())
    assert text.startswith("# makegood\n")
    assert len(re.findall(r"^## ", text, re.MULTILINE)) == 7
    assert "- [Tutorial](start/tutorial.html): " in text


def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("[there](nowhere.md)", encoding="utf-8")
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    with pytest.raises(pages.PageError, match=r"page\.md: nowhere\.md is not there"):
        pages.rewritten(page)


@pytest.mark.timeout(900)  # most of a minute of CPU, on a machine that may do other things
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """Each link inside it leads to a file, and each public name has an entry."""
    command = [sys.executable, "-m", "scripts.site", "--out", str(tmp_path / "site")]
    process = subprocess.run(command, cwd=pages.ROOT, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    site = next(tmp_path.glob("site/[0-9]*"))
    links = {
        (page.relative_to(site).as_posix(), link)
        for page in site.rglob("*.html")
        for link in LINK.findall(page.read_text(encoding="utf-8"))
        if not link.startswith(("data", "//")) and not (page.parent / link.split("?")[0]).exists()
    }
    assert not links
    with (site / "objects.inv").open("rb") as file:
        inventory = InventoryFile.load(file, "", lambda _, name: name)
    python_names = {name for kind, names in inventory.items() if kind.startswith("py:") for name in names}
    assert not {f"makegood.{name}" for name in mg.__all__} - python_names
    assert (site / "llms.txt").is_file()
