"""The calendar has one source: the zone rules that ``base/zones.py`` reads from disk each time.

A database has rules of its own; PostgreSQL keeps them until it is restarted. Python's ``ZoneInfo(name)`` keeps a zone for the whole
life of a process. Either would give two processes two moments for one wall time, and so two tasks.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

PACKAGE: Final = Path(__file__).parents[2] / "src/makegood"
CALENDAR: Final = re.compile(
    r"\b(date_trunc|date_part|date_bin|make_date|make_timestamp|make_timestamptz|make_interval|isfinite|age|strftime|timediff)\s*\("
    r"|\bextract\s*\((?!\s*epoch\b)|\binterval\s*'|::\s*(?:interval|date|timestamp\w*)\b|\bat\s+time\s+zone\s+(?!'utc')"
    r"|\b(?:local|current_)(?:time|date|timestamp)\b(?<!default current_timestamp)|\bset\s+(?:local\s+)?time\s*zone\b",
    re.IGNORECASE,
)
"""What computes with days, months or zones in SQL; seconds since 1970 and their text in UTC may stay."""
READS_ZONES: Final = "base/zones.py"
KEPT: Final = frozenset({"ZoneInfo", "gettz", "get_localzone", "tzset"})
"""What gives a zone that Python keeps, or that of the machine."""


def statements(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of a file that may be SQL: all of .sql, the literals of .py without its docstrings."""
    if file.suffix == ".sql":
        yield 1, re.sub(r"--.*", "", file.read_text())
        return
    tree = ast.parse(file.read_text())
    alone = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in alone:
            yield node.lineno, node.value


def found(texts: Iterator[tuple[int, str]]) -> list[str]:
    """Return what computes with the calendar."""
    sql = re.compile(r"\b(select|update|insert|values|set|where|default)\b", re.IGNORECASE)
    return [
        f"{line}: {hit[0]}" for line, text in texts if sql.search(text) for hit in CALENDAR.finditer(text)
    ]


def test_no_statement_computes_with_the_calendar() -> None:
    files = [
        file
        for room in ("store", "election", "messaging", "transactions")
        for file in sorted((PACKAGE / room).rglob("*"))
        if file.suffix in (".py", ".sql")
    ]
    hits = {
        file.relative_to(PACKAGE).as_posix(): lines for file in files if (lines := found(statements(file)))
    }
    assert hits == {}


@pytest.mark.parametrize(
    ("sql", "count"),
    [
        ("select date_trunc('day', now())", 1),
        ("select extract(hour from x), extract(epoch from clock_timestamp())", 1),
        ("select x + interval '1 day'", 1),
        ("select x at time zone 'Europe/Berlin', x at time zone 'utc'", 1),
        ("select strftime('%s', 'now')", 1),
        ("create table t (at text default current_timestamp)", 0),
        ("select make_interval(secs => 1)::interval", 2),
    ],
)
def test_what_computes_with_the_calendar_is_found(sql: str, count: int) -> None:
    assert len(found(iter([(1, sql)]))) == count


def zones_kept(tree: ast.AST) -> list[int]:
    """Return the lines on which a zone comes from elsewhere than from disk."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and (node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")) in KEPT
    ]


def test_zones_are_read_from_disk_each_time() -> None:
    assert zones_kept(ast.parse("a = ZoneInfo('Europe/Berlin'); b = zoneinfo.ZoneInfo(name)")) == [1, 1]
    hits = {
        file.relative_to(PACKAGE).as_posix(): lines
        for file in sorted(PACKAGE.rglob("*.py"))
        if (lines := zones_kept(ast.parse(file.read_text())))
    }
    assert hits == {}
    reader = (PACKAGE / READS_ZONES).read_text()
    assert "from_file(" in reader
    assert "cache" not in {
        node.attr for node in ast.walk(ast.parse(reader)) if isinstance(node, ast.Attribute)
    }
