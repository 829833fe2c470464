"""Types that would be read as something else, or not at all, are refused where they are declared."""

from dataclasses import dataclass
from typing import Any

import attrs
import msgspec
import pydantic
import pytest

import makegood as mg
from makegood.errors import DefinitionError
from makegood.payload.unsupported_types import refuse_unread
from tests.unit.test_nested_annotations import returning


class Cents(int):
    pass


class Name(str):
    __slots__ = ()


@dataclass(frozen=True)
class Spot:
    x: int


class Model(pydantic.BaseModel, frozen=True):
    n: int


@attrs.define
class Private:
    _n: int = 1


@attrs.define
class Public:
    n: int = 1


@dataclass
class Plain:
    _n: int = 1


@dataclass
class Record(dict[str, int]):
    n: int = 1


@pytest.mark.parametrize(
    ("annotation", "pattern"),
    [
        (
            dict[bool, int],
            r"a key is a text as JSON, and of none a Bool is made; write list\[tuple\[K, V\]\]",
        ),
        (dict[tuple[int, int], int], "of none a Tuple is made"),
        (list[dict[Cents, int]], "of none a Cents is made; write str or int for it"),
        (dict[Spot, int], "of none a Dataclass is made"),
        (dict[Model, int], "of none a Model is made"),
        (Private, r"Private\._n would be left out, .* name it otherwise, or write a dataclass"),
        (Record, "Record is made of dict, which is lost; write a dataclass"),
    ],
)
def test_what_is_not_read_is_refused_where_it_is_declared(annotation: Any, pattern: str) -> None:
    """It was noticed when the action had run, and the step was in doubt."""
    with pytest.raises(
        DefinitionError, match=f"^the result of shop/desk/give: JSON cannot be decoded to .*{pattern}"
    ):
        returning(annotation)


@pytest.mark.parametrize(
    "annotation",
    [dict[Name, int], dict[str | None, int], dict[object, int], dict[Any, int], Public, Plain, object],
)
def test_what_is_read_is_not_refused(annotation: Any) -> None:
    refuse_unread(msgspec.inspect.type_info(annotation), (str, int, float))


def test_an_action_asks_for_its_call_and_takes_none() -> None:
    """Nobody passes it: an annotation mg.Call is refused with what to write, wherever it is."""
    app = mg.App("shop")
    desk = app.agent("desk")
    text = r"is annotated mg\.Call, .*leave it out, and write `call = mg\.current_call\(\)` in the action"

    def plain(order: str, call: mg.Call) -> str:
        return order

    def quoted(order: str, *, call: "mg.Call | None" = None) -> str:
        return order

    for fn in (plain, quoted):
        with pytest.raises(mg.DefinitionError, match=f"the parameter call of shop/desk/{fn.__name__} {text}"):
            desk.action(complete_within="1m", undo=mg.NOTHING)(fn)
    with pytest.raises(mg.DefinitionError, match=f"the input call of shop.plain {text}"):
        app.workflow(plain)
