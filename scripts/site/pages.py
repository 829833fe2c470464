"""From docs/ to the source of the site.

docs/ is plain Markdown that reads well where the repository is browsed. What only a site needs is added to a
copy: tables of contents, absolute links to files outside docs/, the API reference, llms.txt.
"""

import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SOURCE = PROJECT["urls"]["Source"]

LINK = re.compile(r"(?P<before>\[[^\]]*\]\()(?P<target>[^)#\s]*)(?P<anchor>#[^)\s]*)?\)")
ENTRY = re.compile(r"^- +\**\[(?P<title>[^\]]+)\]\((?P<target>[^)]+\.md)\)\**:? *(?P<text>.*)$", re.MULTILINE)
MOVE = re.compile(r"^ *(?P<before>\S+) --> (?P<after>\w+): (?P<why>.*)$", re.MULTILINE)
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


class PageError(Exception):
    """A page that the site cannot show as it is."""


def pages() -> list[Path]:
    """Return the pages of docs/, each folder's README first."""
    return sorted(DOCS.rglob("*.md"), key=lambda page: (page.parent, page.name != "README.md", page.name))


def place(page: Path) -> Path:
    """Return where a page is in the site, from its root."""
    inside = page.relative_to(DOCS)
    return inside.with_name("index.md") if inside.name == "README.md" else inside


def rewritten(page: Path) -> str:
    """Return a page with links that are right in the site. Raises ``PageError`` for a link that leads
    nowhere.
    """

    def led(link: re.Match[str]) -> str:
        target, anchor = link["target"], link["anchor"] or ""
        if not target or "://" in target or target.startswith("mailto:"):
            return link[0]
        file = (page.parent / target).resolve()
        if not file.exists():
            raise PageError(f"{page.relative_to(ROOT)}: {target} is not there")
        if not file.is_relative_to(DOCS) or file.suffix not in {".md", ".svg"}:
            kind = "tree" if file.is_dir() else "blob"
            return f"{link['before']}{SOURCE}/{kind}/main/{file.relative_to(ROOT).as_posix()}{anchor})"
        return f"{link['before']}{target.replace('README.md', 'index.md')}{anchor})"

    parts = FENCE.split(page.read_text(encoding="utf-8"))
    return "".join(_block(part) if part.startswith("```") else LINK.sub(led, part) for part in parts)


def _block(block: str) -> str:
    """Return a fenced block; a drawing of states becomes a table, which needs no program in the browser."""
    if not block.startswith("```mermaid"):
        return block
    moves = [
        f"| {one['before'].replace('[*]', '')} | {one['after']} | {one['why']} |"
        for one in MOVE.finditer(block)
    ]
    return "\n".join(["| From | To | When |", "|---|---|---|", *moves, ""])


def contents(page: Path) -> list[str]:
    """Return what belongs below a folder's README or the home page in the table of contents, in its order."""
    entries: list[str] = []
    for link in LINK.finditer(page.read_text(encoding="utf-8")):
        target = (page.parent / link["target"]).resolve()
        if not link["target"].endswith(".md") or not target.is_relative_to(DOCS) or target == page:
            continue
        inside = target.relative_to(page.parent) if target.is_relative_to(page.parent) else None
        own = inside is not None and len(inside.parts) == 1
        folder = target.name == "README.md" and _owner(target) == page
        name = re.sub(r"README\.md$", "index.md", link["target"])
        if (own or folder) and name not in entries:
            entries.append(name)
    return entries


def _owner(readme: Path) -> Path:
    """Return the page below which a folder stands: the README or home page that links to it, and is nearest."""
    return {
        DOCS / "adr/README.md": DOCS / "project/README.md",
        DOCS / "internals/README.md": DOCS / "tested/README.md",
    }.get(readme, readme.parent.parent / ("index.md" if readme.parent.parent == DOCS else "README.md"))


def toctree(entries: list[str], *, hide: bool = True) -> str:
    """Return a table of contents as the site's generator reads it."""
    lines = ["", "```{toctree}", ":hidden:" if hide else ":maxdepth: 1", "", *entries, "```", ""]
    return "\n".join(lines)


def outline() -> Iterator[str]:
    """Yield the lines of llms.txt: what makegood is, and each page with what it is about."""
    home = (DOCS / "index.md").read_text(encoding="utf-8")
    yield "# makegood\n"
    yield f"> {PROJECT['description']}\n"
    yield re.split(r"^- ", home.partition("\n")[2], maxsplit=1, flags=re.MULTILINE)[0].strip() + "\n"
    for section in contents(DOCS / "index.md"):
        readme = DOCS / section.replace("index.md", "README.md")
        text = readme.read_text(encoding="utf-8")
        yield f"## {text.partition(chr(10))[0].removeprefix('# ')}\n"
        for entry in ENTRY.finditer(text):
            page = (place((readme.parent / entry["target"]).resolve())).with_suffix(".html").as_posix()
            yield f"- [{entry['title']}]({page}): {entry['text']}"
        yield ""


def write(target: Path, api: dict[str, str]) -> None:
    """Write the source of the site. ``api``: the pages of the API reference, by file name."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(DOCS, target, ignore=shutil.ignore_patterns("*.md"))
    for page in pages():
        text = rewritten(page)
        if page.name == "README.md" or page == DOCS / "index.md":
            entries = contents(page)
            if page == DOCS / "reference/README.md":
                entries.append("api/index.md")
                text += "\n- [API reference](api/index.md): every public name, from its docstring.\n"
            text += toctree(entries)
        (target / place(page)).parent.mkdir(parents=True, exist_ok=True)
        (target / place(page)).write_text(text, encoding="utf-8")
    for name, text in api.items():
        (target / "reference/api" / name).parent.mkdir(parents=True, exist_ok=True)
        (target / "reference/api" / name).write_text(text, encoding="utf-8")
    (target / "extra").mkdir()
    (target / "extra/llms.txt").write_text("\n".join(outline()), encoding="utf-8")
    whole = "\n\n".join(page.read_text(encoding="utf-8") for page in pages())
    (target / "extra/llms-full.txt").write_text(whole, encoding="utf-8")
