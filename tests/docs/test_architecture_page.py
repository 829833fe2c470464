"""The page on the architecture names modules and objects that exist: it is where a newcomer looks first."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/internals/architecture.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "src/makegood"


def test_every_path_on_the_page_is_there() -> None:
    """Of modules and rooms alike; what the user writes and what stands beside the package is spared."""
    named = set(re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", PAGE))
    assert len(named) > 20
    assert not {path for path in named if not (PACKAGE / path).exists() and not (ROOT / path).exists()}


def test_every_room_stands_on_a_floor_of_the_drawing() -> None:
    """A room that is added must be drawn."""
    drawing = PAGE.split("```")[1]
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert not {room for room in rooms if not re.search(rf"\b{room}\b", drawing)}


def test_the_parts_of_the_large_objects_are_classes() -> None:
    """Each name in the table of objects is a class of the package."""
    table = PAGE.split("## The large objects")[1].split("## ")[0]
    named = set(re.findall(r"`([A-Z]\w+)`", table))
    classes = {
        node.name
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    }
    assert not named - classes
