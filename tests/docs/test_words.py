"""The words of STYLE: pages, help texts, errors and docstrings keep its ten rules, or break them less often each time.

``STILL`` would say how often an area may break a rule; it is empty, and stays so.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest

import makegood
from makegood.cli import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
INSTEAD = {
    r"(?:^|[.:;] |\| |- )(?:Who|Whoever) (?!are\b|is\b|does\b|should\b|may\b|leads\b|can\b|did\b)[a-z]+": "1: name the subject: 'If you …', 'A process that …'",
    r"(?:^|[.:;] )What (?:was|waits|stands|cannot|has|must|belongs|streams|fails|needs|runs|holds|comes|goes|follows)\b": "1: name the subject",
    r"\b(?:stands?|stood)\b(?!-| for\b)": "2: is in place, is open, is in, appears",
    r"\b(?:told|tells)\b": "3: is notified, is reported, shows, sends",
    r"\bsays? so\b": "3: reports it, logs it",
    r"\b(?:is|are|was|were) refused\b": "4: 'makegood refuses …', 'the service refuses …'",
    r"(?:^|[.:;] )(?:Kept|Assumed|Counted|Measured|Shown|Not shown|Left|Said|Taken|Tried) (?:is|are|was|were)\b": "4: subject first",
    r"(?<!here )\bis no (?!longer|more|reason|way|need|such|other|default\b|limit\b|answer\b)[a-z`]+": "5: 'is not a'",
    r"\b(?:has|have) not (?:a|an|the|one|any)\b": "5: 'does not have'",
    r"\b(?:dear|dearer|befalls?|in earnest|anew|how-manieth|parted by|lawful|hence|mends?|be it)\b": "6: a plain word",
    r"\b(?:comes?|came) again\b": "7: is redelivered, is retried",
    r"\b(?:go|goes|went|going) on\b": "7: continues",
    r"\b(?:gives?|gave|given) back\b": "7: releases, returns",
    r"\b(?:his|he|him)\b": "8: they, you",
    r"\bfor ever\b": "9: forever",
    r"\bbelongs? into\b": "9: belongs in",
    r"\d %": "9: no space before %",
    r"\ball but\b": "9: all except",
    r"\bat most so many\b": "9: at most N",
    r"\bfor so long\b": "9: for this long",
    r"; (?:it|they) (?:was|were|said|raised|returned)\b": "10: a new sentence that begins with 'Previously'",
    r"\b(?:guilty|canary|canaries|complete-by)\b": "terms: unreadable, trial call, deadline",
    r"\b(?:an|the|each|every|any|no|which) acts?\b(?! (?:as|on|for)\b)": "terms: operator command",
    r"\b(?:largest|smallest|per|of each) flights?\b": "terms: in flight, concurrency",
}
WORDS = re.compile("|".join(f"(?:{pattern})" for pattern in INSTEAD), re.MULTILINE)
PUBLIC = ("makegood", "makegood.testing", "makegood.election")
STILL: dict[str, int] = {}
"""How often an area may still break a rule: nowhere."""


def prose(page: str) -> str:
    """Return a page without its code: what a person wrote for another."""
    page = re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    page = re.sub(r"\]\([^)]*\)", "]", page)
    return re.sub(r"`[^`\n]*`", "`x`", page)


def broken(text: str) -> list[str]:
    """Name each place of a text that breaks a rule, with what to write instead."""
    hits = []
    for hit in WORDS.finditer(text):
        instead = next(
            instead
            for pattern, instead in INSTEAD.items()
            if re.compile(pattern, re.MULTILINE).match(text, hit.start())
        )
        around = text[max(0, hit.start() - 40) : hit.end() + 40].replace("\n", " ")
        hits.append(f"{instead}: … {around} …")
    return hits


def held(area: str, hits: list[str]) -> None:
    """Fail if an area breaks the rules more often than it did."""
    assert len(hits) <= STILL.get(area, 0), f"{area}: {len(hits)}\n" + "\n".join(hits)


def helps(command: click.Command) -> Iterator[str]:
    """Yield every help text of a command and of those below it."""
    yield command.help or ""
    yield from (param.help or "" for param in command.params if isinstance(param, click.Option))
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from helps(below)


def raised(source: str) -> Iterator[str]:
    """Yield the texts of the errors that a module raises."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            for part in (part for argument in node.exc.args for part in ast.walk(argument)):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value


def public() -> dict[str, str]:
    """Return the docstring of each public name, and of its own public members."""
    docstrings = {}
    for module in map(import_module, PUBLIC):
        for name in getattr(module, "__all__", ()):
            thing = getattr(module, name)
            docstrings[f"{module.__name__}.{name}"] = inspect.getdoc(thing) or "" if callable(thing) else ""
            for member, value in vars(thing).items() if inspect.isclass(thing) else ():
                if not member.startswith("_") and (callable(value) or isinstance(value, property)):
                    docstrings[f"{module.__name__}.{name}.{member}"] = inspect.getdoc(value) or ""
    return docstrings


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages(page: Path) -> None:
    """Each page for itself: a page that was rewritten has none."""
    text = page.read_text(encoding="utf-8")
    if page.name == "STYLE.md":  # the section that quotes them
        text = re.sub(r"^## Words.*?(?=^## )", "", text, flags=re.MULTILINE | re.DOTALL)
    held(page.relative_to(ROOT).as_posix(), broken(prose(text)))


def test_help_texts() -> None:
    """All that ``--help`` prints."""
    held("help", [each for text in set(helps(main)) for each in broken(text)])


def test_errors() -> None:
    """What errors say where they are raised."""
    sources = sorted((ROOT / "src/makegood").rglob("*.py"))
    held(
        "errors",
        [
            each
            for path in sources
            for text in raised(path.read_text(encoding="utf-8"))
            for each in broken(text)
        ],
    )


def test_public_docstrings() -> None:
    """What ``help()`` and the reference of the API show."""
    assert makegood.__all__
    held("docstrings", [f"{name}: {each}" for name, text in public().items() for each in broken(prose(text))])


FIELD = (
    "saga",
    "compensat",
    "orchestrat",
    "idempotency key",
    "fencing token",
    "deadline",
    "durable execution",
    "outbox",
)
"""Whoever looks for one of these finds makegood."""


@pytest.mark.parametrize(
    "page",
    ["README.md", "docs/index.md", "docs/learn/guarantees.md", "docs/learn/glossary.md", "pyproject.toml"],
)
def test_the_words_of_the_field_are_found(page: str) -> None:
    """On the first pages, and in the description and the keywords of the package."""
    text = (ROOT / page).read_text(encoding="utf-8").lower()
    if page == "pyproject.toml":
        text = text[text.index("description = ") : text.index("classifiers")].replace("-", " ")
    assert not [word for word in FIELD if word not in text]


@pytest.mark.parametrize("instead", INSTEAD)
def test_each_pattern_finds_something(instead: str) -> None:
    """A pattern that finds nothing would keep nothing out."""
    examples = """Who waits sees. What waits is late. It stands there. There he is told. It says so. It is refused. Kept are tasks.
It is no receipt. It has not a name. Nothing lawful. It comes again. It goes on. It gives back. For ever: for ever. It belongs into it. 5 %.
all but one; at most so many; for so long; it was; the canary; an act; the largest flight"""
    assert re.search(instead, examples, re.MULTILINE)
