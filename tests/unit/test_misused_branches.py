"""What is no branch and no codec is refused where it is written, with what to write."""

from collections.abc import Callable
from typing import Any

import pytest

import makegood as mg

app = mg.App("shop")
desk = app.agent("desk")


@desk.action(complete_within="10s", undo=mg.NOTHING)
def book(trip: str) -> str:
    return trip


@desk.action(complete_within="10s", undo=mg.NOTHING)
def places(trip: str) -> list[str]:
    return trip.split()


async def later() -> str:
    return book("x")


def branch(trip: str) -> str:
    return book(trip)


FORMS: list[tuple[str, Callable[[Any], Any]]] = [
    (r"mg\.first\(fn, fn, \.\.\.\)", lambda fn: mg.first(fn, fn)),
    (r"mg\.branches\(fn, fn, \.\.\.\)", lambda fn: mg.branches(fn, fn)),
    (r"mg\.when\(condition, then=\.\.\., otherwise=\.\.\.\)", lambda fn: mg.when(book("y") == "y", then=fn)),
    (r"mg\.each\(items, body\)", lambda fn: mg.each(places("y"), fn)),
]


@pytest.mark.parametrize(("form", "write"), FORMS, ids=[form for form, _ in FORMS])
def test_a_branch_is_a_plain_function_of_nothing(form: str, write: Callable[[Any], Any]) -> None:
    """It was called, and Python's TypeError or a coroutine that nobody awaits was all that one saw."""

    def plan_with(fn: Any) -> Any:
        @app.workflow(name=f"ship_{len(app.workflows)}")
        def ship(order: str) -> None:
            write(fn)

        return ship.plan("o-1")

    with pytest.raises(mg.DefinitionError, match=f"{form}: later is an async def: .* write a plain def"):
        plan_with(later)
    two = (lambda a, b: book(a)) if "each" in form else branch  # noqa: ARG005 - it is one too many
    with pytest.raises(mg.DefinitionError, match=f"{form}: .* takes .*, and is called with"):
        plan_with(two)


def test_what_is_no_codec_is_refused_with_what_is_one(tmp_path: Any) -> None:
    anything: Any = mg.codecs
    client: Any = mg.Client
    with pytest.raises(mg.ConfigError, match=r"Encrypted\(keys\): pass at least one key, \{id: 32 bytes\}"):
        anything.Encrypted("secret")
    with pytest.raises(mg.ConfigError, match=r"Chain\(\.\.\.\): pass codecs, .* such as Compressed\(\)"):
        anything.Chain(anything.Compressed)
    with pytest.raises(mg.DefinitionError, match=r"as mg\.codecs\.Encrypted\(keys\) has"):
        mg.App("shop", codec=anything.Encrypted)
    for wrong in (anything.Compressed, app, "trips:shop"):
        with pytest.raises(mg.ConfigError, match=r"pass a codec, such as mg\.codecs\.Encrypted\(keys\)"):
            client(f"sqlite:///{tmp_path}/shop.db", codec=wrong)
