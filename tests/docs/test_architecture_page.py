"""The page on the architecture names modules and objects that exist: it is where a newcomer looks first."""

import configparser
import re
from pathlib import Path

from makegood.store.protocol import Store

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/internals/architecture.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "src/makegood"


def test_every_path_on_the_page_is_there() -> None:
    """Of modules and rooms alike; what the user writes and what stands beside the package is spared."""
    paths = set(re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", PAGE))
    assert len(paths) > 20
    assert not {path for path in paths if not (PACKAGE / path).exists() and not (ROOT / path).exists()}


def test_the_drawing_has_the_floors_of_the_layers() -> None:
    """Each room is on its floor of ``.importlinter``, from the top down; the ground has number 0."""
    floors: list[set[str]] = []
    for line in PAGE.split("```")[1].strip("\n").splitlines():
        number, names = line[:6].strip(), line[6:].split("    ")[0].split()
        if number:
            floors.append(set())
            assert int(number) + len(floors) == 16, line
        floors[-1] |= {name.strip("│") for name in names}
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter", encoding="utf-8")
    layers = contracts["importlinter:contract:floors"]["layers"].strip().splitlines()
    assert floors == [set(re.findall(r"\w+", layer)) for layer in layers]


def test_the_parts_of_the_large_objects_are_classes() -> None:
    """Each name in the table of objects is a class of the package."""
    table = PAGE.split("## The large objects")[1].split("## ")[0]
    names = set(re.findall(r"`([A-Z]\w+)`", table))
    classes = {
        name
        for path in PACKAGE.rglob("*.py")
        for name in re.findall(r"^ *class (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert not names - classes


def test_the_slices_of_the_store_are_listed() -> None:
    """By their names on the store; its identity and its label are none."""
    row = next(line for line in PAGE.splitlines() if line.startswith("| `Store` |"))
    slices = {name for name, one in vars(Store).items() if isinstance(one, property)} - {"identity", "label"}
    assert set(re.findall(r"`(\w+)`", row)) - {"Store"} == slices
