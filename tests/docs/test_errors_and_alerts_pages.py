"""The pages of errors and of alerts are complete: each error and each kind once, with the exit code of the code."""

import re
from pathlib import Path
from typing import get_args

from makegood import errors
from makegood.cli import exits
from makegood.model.messages import UNTIL_SEEN, AlertKind

PAGES = Path(__file__).resolve().parents[2] / "docs/reference"
ERRORS = (PAGES / "errors.md").read_text(encoding="utf-8")
ALERTS = (PAGES / "alerts.md").read_text(encoding="utf-8")


def rows(page: str) -> dict[str, list[str]]:
    """Return the cells of each row of the page's tables, by the name in its first cell."""
    table: dict[str, list[str]] = {}
    for line in page.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells and (name := re.fullmatch(r"`(\w+)`", cells[0])):
            assert name[1] not in table, f"{name[1]} has two rows"
            table[name[1]] = cells[1:]
    return table


def test_each_error_has_a_row_with_its_exit_code() -> None:
    """All of the family, none besides; a dash is for what reaches no command."""
    family = {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.MakegoodError)
    }
    del family["MakegoodError"]
    table = rows(ERRORS)
    assert set(table) == set(family)
    for name, cells in table.items():
        if cells[-1] != "–":
            assert int(cells[-1]) == exits.code_of(family[name].__new__(family[name])), name


def test_each_attribute_of_an_error_is_named() -> None:
    """What a row calls an attribute is one, and none is passed over."""
    for name, cells in rows(ERRORS).items():
        kind = getattr(errors, name)
        code = kind.__init__.__code__ if "__init__" in vars(kind) else None
        parameters = set(code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]) if code else set()
        attributes = set(re.findall(r"`\.(\w+)`", " ".join(cells)))
        assert attributes <= parameters | {"task_id"}, name
        assert parameters - attributes <= {"task_id", "message", "act", "queue"}, name


def test_each_alert_has_a_row_and_ends_as_the_page_says() -> None:
    """All kinds, none besides; those that stay until they are acknowledged are named as such."""
    table = rows(ALERTS)
    assert set(table) == set(get_args(AlertKind))
    (until_seen,) = re.findall(r"repairs the cause: (.*)\.$", ALERTS, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", until_seen)) == set(UNTIL_SEEN)
    assert all("acknowledge" in table[kind][1] for kind in UNTIL_SEEN)
