"""The reference on declaring: its module is loaded and run, and the defaults in its tables are those of the code."""

import asyncio
import collections
import dataclasses
import datetime as dt
import decimal
import enum
import inspect
import re
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pydantic
import pytest

import makegood as mg
from makegood import options
from makegood.cli.settings import KNOWN
from makegood.client.submission import plan_of
from makegood.declare import terms
from makegood.declare.terms import EXTEND_MOST
from makegood.payload.codec import decode, decoder, encode
from makegood.workflow import app as app_
from tests.docs.test_operate_howto import loaded

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "reference/declare.md").read_text("utf-8")


def module(folder: Path) -> Any:
    """Return the page's blocks as one module."""
    code = "\n\n".join(re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
    (folder / "declared_reference.py").write_text(code, encoding="utf-8")
    return loaded(folder, "declared_reference")


@pytest.mark.parametrize(("cents", "review"), [(5, "skipped"), (200_000, "done")])
def test_its_workflow_runs(tmp_path: Path, cents: int, review: str) -> None:
    page = module(tmp_path)

    async def call() -> dict[str, str]:
        async with mg.Node(page.shop, f"sqlite:///{tmp_path / 'shop.db'}") as node:
            task = await node.client.submit(page.place_order, page.Order("o", ["nut", "bolt"], cents))
            assert await task.result("60s") == "charge done"
            return {step.name: step.state for step in (await task.status()).steps}

    states = asyncio.run(call())
    assert states["review"] == review
    del states["review"]
    steps = [name.partition("-")[0] for name, state in states.items() if state == "done"]
    assert {"reserve", "charge", "receipt", "rate_risk"} <= set(steps)
    assert "failed" not in states.values()


def rows(heading: str) -> dict[str, str]:
    """Return the second column of the first table below a heading, by the names in the first."""
    table = PAGE.partition(f"\n## `{heading}")[2].partition("\n\n**")[0].partition("\n## ")[0]
    cells = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| `")]
    return {name: what.strip() for names, what in cells for name in re.findall(r"`(\w+)`", names)}


def test_the_options_and_their_defaults_are_those_of_the_code() -> None:
    """Each parameter has its row, each row its parameter."""
    app = {n: p.default for n, p in inspect.signature(app_.App).parameters.items() if n != "name"}
    assert rows("mg.App") == {n: str(default) for n, default in app.items()}
    of_agent = inspect.signature(app_.App.agent).parameters
    assert {n: str(of_agent[n].default) for n in list(of_agent)[2:]} == rows("app.agent")
    assert set(rows("@agent.action")) == set(inspect.signature(terms.Declared).parameters)
    for record in (mg.Retry(), mg.Recover(), mg.Breaker()):
        defaults = ", ".join(
            f'{n}="{p.default}"' if isinstance(p.default, str) else f"{n}={p.default}"
            for n, p in inspect.signature(type(record)).parameters.items()
            if n != "never"
        )
        signature = f"`mg.{type(record).__name__}({defaults})`"
        assert signature in PAGE, f"docs/reference/declare.md: write {signature}"


def test_every_attribute_of_a_call_is_listed() -> None:
    table = PAGE.partition("### `mg.current_call()`")[2].partition("\n## ")[0]
    attributes = {
        name
        for line in table.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`(\w+)[`(]", line.split("|")[1])
    }
    assert attributes == {name for name in vars(mg.Call) if not name.startswith("_")} - {"traced"}
    assert EXTEND_MOST == 10


def test_options_are_the_settings() -> None:
    assert set(inspect.signature(options.Options).parameters) - {"migrate"} <= set(KNOWN)


@dataclasses.dataclass
class Line:
    id: str
    n: int


class Model(pydantic.BaseModel):
    n: int = pydantic.Field(alias="N")


@pydantic.dataclasses.dataclass
class Checked:
    n: int


class Colour(enum.Enum):
    RED = "red"


class Name(str):
    __slots__ = ()


VALUES: list[tuple[str, Any, Any]] = [
    ("`str`, `int`", float, 2.5), ("`list[T]`", tuple[int, str], (1, "a")), ("`set[T]`", set[int], {2}), ("`dict[K, V]`", dict[int, str], {1: "a"}),
    ("a dataclass", Line, Line("a", 1)), ("a pydantic model", Model, Model(N=1)), ("a pydantic dataclass", Checked, Checked(1)), ("an `Enum`", Colour, Colour.RED),
    ("`datetime`", dt.datetime, dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC)), ("`timedelta`", dt.timedelta, dt.timedelta(minutes=5)),
    ("`Decimal`", decimal.Decimal, decimal.Decimal("1.10")), ("`UUID`", uuid.UUID, uuid.UUID(int=1)), ("`bytes`", bytes, b"ab"),
    ("a class of yours", Name, Name("a")), ("`Any`", object, {"a": [None]}),
]  # fmt: skip


def test_the_json_of_each_type_is_that_of_the_table() -> None:
    """Row by row; and it is read back as it was. Below it stands what is refused."""
    table, _, below = PAGE.partition("\n## Types\n")[2].partition("\n## ")[0].partition("\n\n- ")
    lines = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(lines) == len(VALUES)
    for line, (start, annotation, value) in zip(lines, VALUES, strict=True):
        assert line.startswith(f"| {start}")
        data = encode(value)
        assert line.endswith(f"| `{data.decode()}` |")
        assert decode(data, annotation) == value
    for kind in (
        collections.Counter,
        collections.OrderedDict,
        collections.defaultdict,
        collections.deque,
        Iterable,
        Path,
        complex,
    ):
        assert f"`{kind.__name__}`" in below
        with pytest.raises(mg.DefinitionError):
            decode(b"1", kind)


@pytest.mark.parametrize(
    ("annotation", "fits"),
    [
        (Line | None, True), (Model | None, True), (Line | int | str, True), (Line | Model, False), (dt.date | str, False), (Line | dict[str, int], False),
    ],
)  # fmt: skip
def test_unions_are_what_json_can_tell_apart(annotation: Any, fits: bool) -> None:
    if fits:
        assert callable(decoder(annotation, "it"))
    else:
        with pytest.raises(mg.DefinitionError):
            decoder(annotation, "it")


def test_the_options_of_a_workflow_that_is_called_in_another_have_no_effect() -> None:
    """As the page says; submitted by itself it has them."""
    app = mg.App("shop")

    @app.agent("desk").action(complete_within=1, undo=mg.NOTHING)
    def pack(n: int) -> int:
        return n

    @app.workflow(complete_within="1m", undo_within="2m", on_failure="hold")
    def inner(n: int) -> int:
        return pack(n)

    @app.workflow
    def outer(n: int) -> int:
        return inner(n)

    alone, within = inner.plan(1), outer.plan(1)
    assert (alone.within, alone.undo_within, alone.on_failure) == (60, 120, "hold")
    assert (within.within, within.undo_within, within.on_failure) == (None, None, "undo")


def test_inputs_by_name_go_to_the_plan() -> None:
    """Whoever submits them by position is told how."""
    app = mg.App("shop")

    @app.workflow
    def run(n: int, *, kind: str) -> int:
        return n

    plan = run.plan(1, kind="a")
    assert plan_of(plan, ()).inputs == (b"1", b'"a"')
    with pytest.raises(
        mg.DefinitionError, match=r"after the \* goes by name: submit\(run\.plan\(kind=\.\.\.\)\)"
    ):
        plan_of(run, (1, "a"))
