"""Names are nouns for things, verbs for functions, adjectives for conditions: how many are a bare participle may only fall.

A binding is a parameter, or a name or attribute that is assigned. ``found``, ``asked`` or ``made`` say what was done to a thing, and
not what it is: a reader meets them without the sentence that they end. Libraries of the field have 0.5 to 2 % of them.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src/makegood"


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text))


IRREGULAR: Final = _words(
    "been begun borne bought bound broken brought built caught chosen dealt done drawn driven fallen fed felt forgotten fought found "
    "frozen given gone got grown had heard held hidden hung hurt kept known laid lain led left lent lost made meant met paid proven "
    "ridden risen rung said seen sent shaken shone shot shown slept slid sold sought sent spent spoken spun stolen stood struck stuck "
    "sung sunk sworn swum taken taught thought thrown told torn undone understood withdrawn woken won worn written"
)
NO_PARTICIPLES: Final = _words(
    "bed creed deed embed exceed feed greed hundred indeed need proceed red seed speed succeed"
)
EXEMPT: Final[frozenset[str]] = frozenset({"left"})
"""A side, as often as what remains."""
LOOSE: Final = _words(
    "all any another both each either else here how it later less many more most much neither none nothing one other others rest same "
    "several some such that them then there these they this those what when where which who whom whose why"
)
"""Pronouns and adverbs: they are counted, and have no target."""

MOST: Final = {
    "actor": 66.7,
    "agent": 29.1,
    "base": 13.2,
    "benchmarks": 21.7,
    "cli": 8.4,
    "client": 28.8,
    "console": 17.2,
    "declare": 45.5,
    "election": 31.5,
    "examples": 24.4,
    "messaging": 10.3,
    "model": 62.3,
    "node": 43.4,
    "payload": 12.4,
    "proofs": 26.7,
    "saga": 24.2,
    "scheduler": 52.1,
    "scripts": 7.0,
    "store": 23.6,
    "story": 18.2,
    "supervisor": 79.6,
    "telemetry": 12.7,
    "testing": 45.5,
    "tests": 7.7,
    "the package": 26.1,
    "transactions": 0.0,
    "workflow": 23.5,
}
"""Bindings in a thousand that are bare participles, at most; nobody raises a number. The target: 20 in each room, 15 in all."""


def is_participle(name: str) -> bool:
    """Whether a name is one word that says what was done."""
    word = name.strip("_")
    if not word.isalpha() or not word.islower() or word in EXEMPT:
        return False
    return word in IRREGULAR or (len(word) > 3 and word.endswith("ed") and word not in NO_PARTICIPLES)


def bindings(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a module binds: parameters, and what is assigned."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.ExceptHandler) and node.name is not None:
            yield node.name


def names_of(files: Sequence[Path]) -> Counter[str]:
    """Return how often each name is bound."""
    names = Counter(name for file in files for name in bindings(ast.parse(file.read_text(encoding="utf-8"))))
    for usual in ("self", "cls", "_"):
        names.pop(usual, None)
    return names


def thousandths(names: Counter[str]) -> float:
    """Return how many bindings in a thousand are bare participles."""
    return 1000 * sum(count for name, count in names.items() if is_participle(name)) / names.total()


def rooms() -> dict[str, list[Path]]:
    """Return the files of each part of the project."""
    inside = [path for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"]
    parts = {path.name: sorted(path.rglob("*.py")) for path in inside}
    parts["the package"] = sorted(PACKAGE.rglob("*.py"))
    parts |= {
        name: sorted((ROOT / name).rglob("*.py"))
        for name in ("tests", "proofs", "scripts", "examples", "benchmarks")
    }
    return parts


@pytest.mark.parametrize("room", sorted(rooms()))
def test_fewer_names_say_only_what_was_done(room: str) -> None:
    """A room without a number has too few names to count."""
    names = names_of(rooms()[room])
    if names.total() <= 100:
        return
    share, worst = (
        thousandths(names),
        [(name, n) for name, n in names.most_common() if is_participle(name)][:8],
    )
    loose = 1000 * sum(n for name, n in names.items() if name.strip("_") in LOOSE) / names.total()
    assert share <= MOST[room], (
        f"{room}: {share:.1f} of 1,000 names are bare participles, {MOST[room]} were allowed; most often {worst}; "
        f"{loose:.1f} are pronouns and adverbs"
    )
    assert share > MOST[room] - 5, (
        f"{room}: {share:.1f} of 1,000 names are bare participles: write {share:.0f} or less into MOST"
    )


@pytest.mark.parametrize(
    ("name", "participle"),
    [
        ("found", True),
        ("_asked", True),
        ("detail", False),
        ("found_at", False),
        ("seed", False),
        ("FOUND", False),
        ("left", False),
    ],
)
def test_what_a_bare_participle_is(name: str, participle: bool) -> None:
    assert is_participle(name) is participle
