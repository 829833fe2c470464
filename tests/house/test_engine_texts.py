"""What the engine writes for people is never read back by programs: the history holds facts, and ``story`` puts them into words.

A text that is matched ties its wording to a program that nobody sees. Looked for are patterns, beginnings, ends and parts of what has
the name of such a text. The first line of one is ``first_line``.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parents[2] / "src/makegood"
TEXTS: Final = frozenset({"cause", "ended_why", "error", "happens", "note", "outcome", "said", "why"})
"""Names under which the engine's texts are known."""
READERS: Final = frozenset(
    {
        "casefold", "endswith", "find", "finditer", "fullmatch", "lower", "match", "partition", "removeprefix",
        "removesuffix", "rfind", "rpartition", "rsplit", "search", "split", "splitlines", "startswith",
    }
)  # fmt: skip
"""What looks into a text, be it a method of the text or of a pattern."""
ROOMS: Final = (
    "agent", "cli", "client", "console", "messaging", "model", "node", "saga", "scheduler", "store", "supervisor", "telemetry", "workflow",
)  # fmt: skip
MAY: Final = {
    "model/notices.py": 2,  # the kind of an exception, out of its text, for webhooks that get no more of it
    "store/error_groups.py": 1,  # an error is compared with the error that a step stands in
}
"""Readings that are right, by file."""


def _subject(node: ast.expr) -> str:
    """Return the last name of an expression, of ``x or ""`` that of x."""
    if isinstance(node, ast.BoolOp):
        return next(filter(None, map(_subject, node.values)), "")
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str" and node.args:
        return _subject(node.args[0])
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def readings(tree: ast.AST) -> Iterator[int]:
    """Yield the line of each place where a program looks into a text of the engine."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            pairs = zip(node.ops, node.comparators, strict=True)
            if any(isinstance(op, ast.In | ast.NotIn) and _subject(right) in TEXTS for op, right in pairs):
                yield node.lineno
        elif (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in READERS
        ):
            subjects = {_subject(node.func.value), *map(_subject, node.args)}
            yield from [node.lineno] * bool(subjects & TEXTS)


def test_no_program_reads_back_what_the_engine_wrote_for_people() -> None:
    found = {
        file.relative_to(PACKAGE).as_posix(): lines
        for room in ROOMS
        for file in sorted((PACKAGE / room).rglob("*.py"))
        if (lines := [*readings(ast.parse(file.read_text()))])
    }
    surplus = {path: lines for path, lines in found.items() if len(lines) > MAY.get(path, 0)}
    assert surplus == {}, "ask for the fact (a reason, a state), or write the answer in story/"
    assert {path: len(found.get(path, ())) for path in MAY} == MAY, "fewer are right now: lower the number"


def test_what_looks_into_a_text_is_found() -> None:
    for wrong in (
        'if "refused" in task.cause: pass', 'step.error.startswith("in doubt")', "PATTERN.match(cause)", 're.search("x", move.why)',
        '(view.error or "").partition(": ")', 'str(error).split(";")', "error not in preview.happens",
    ):  # fmt: skip
        assert [*readings(ast.parse(wrong))] == [1], wrong
    for right in (
        'move.reason in ("probe", "fenced")',
        "first_line(step.error)",
        'f"{cause}: x"',
        "error in {cause: 1}",
        "cause == 'x'",
    ):
        assert [*readings(ast.parse(right))] == [], right
