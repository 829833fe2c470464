"""What a person types has no member that nobody would read; what is stored, and every message, may have one."""

from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest

import makegood as mg
from makegood.payload.codec import decode
from makegood.payload.unknown_fields import refuse_unknown


@dataclass
class Line:
    sku: str
    note: str | None = None


class Address(TypedDict, total=False):
    city: str


class Card(msgspec.Struct, tag="card", rename="camel"):
    number: str
    valid_until: str = ""


class Invoice(msgspec.Struct, tag="invoice"):
    vat: str = ""


class Pair(NamedTuple):
    line: Line
    n: int


class Contact(pydantic.BaseModel):
    email: str | None = pydantic.Field(default=None, alias="eMail")
    home: Line | None = None


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")


class Chosen(pydantic.BaseModel):
    email: str | None = pydantic.Field(default=None, validation_alias=pydantic.AliasChoices("a", "b"))


class Renaming(pydantic.BaseModel):
    email: str | None = None

    @pydantic.model_validator(mode="before")
    @classmethod
    def renamed(cls, value: Any) -> Any:
        return {"email": value["mail"]}


@dataclass
class Order:
    id: str
    email: str | None = None
    lines: list[Line] = field(default_factory=list)
    to: Address | None = None
    pay: Card | Invoice | None = None
    pairs: tuple[Pair, ...] = ()
    by_name: dict[str, Line] = field(default_factory=dict)
    free: dict[str, Any] = field(default_factory=dict)
    after: "Order | None" = None


REFUSED = [
    ({"id": "o", "emial": "a@b"}, Order, ": unknown field 'emial'; did you mean 'email'?"),
    ({"id": "o", "x": 1}, Line, ": unknown field 'id'; its fields are sku, note"),
    ({"id": "o", "lines": [{"sku": "a"}, {"sku": "b", "nota": "c"}]}, Order, ".lines[1]: unknown field 'nota'; did you mean 'note'?"),
    ({"id": "o", "to": {"citi": "Rome"}}, Order, ".to: unknown field 'citi'; did you mean 'city'?"),
    ({"id": "o", "pay": {"type": "card", "number": "1", "validUntl": ""}}, Order, ".pay: unknown field 'validUntl'; did you mean 'validUntil'?"),
    ({"id": "o", "pay": {"type": "invoice", "number": "1"}}, Order, ".pay: unknown field 'number'; its fields are type, vat"),
    ({"id": "o", "pairs": [[{"skq": "a"}, 1]]}, Order, ".pairs[0][0]: unknown field 'skq'; did you mean 'sku'?"),
    ({"id": "o", "by_name": {"a": {"skq": "a"}}}, Order, ".by_name['a']: unknown field 'skq'; did you mean 'sku'?"),
    ({"id": "o", "after": {"id": "p", "emial": ""}}, Order, ".after: unknown field 'emial'; did you mean 'email'?"),
    ({"email": "a@b", "eMial": ""}, Contact, ": unknown field 'eMial'; did you mean 'eMail'?"),
    ({"home": {"skq": "a"}}, Contact, ".home: unknown field 'skq'; did you mean 'sku'?"),
    ({"skq": ""}, Annotated[Line, "described"], ": unknown field 'skq'; did you mean 'sku'?"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "annotation", "complaint"), REFUSED)
def test_an_unknown_member_is_refused_by_name_and_place(value: Any, annotation: Any, complaint: str) -> None:
    with pytest.raises(mg.PayloadError) as error:
        refuse_unknown(value, annotation, "the input order")
    assert str(error.value) == f"the input order{complaint}"


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (
            {
                "id": "o", "email": None, "lines": [{"sku": "a", "note": "b"}], "to": {"city": "Rome"}, "free": {"x": {"y": 1}},
                "pay": {"type": "card", "number": "1", "validUntil": "2030"}, "pairs": [[{"sku": "a"}, 1]], "after": {"id": "p"},
            },
            Order,
        ),
        ({"x": 1}, Any), ({"x": 1}, dict), ({"x": 1}, Open), ({"b": "c"}, Chosen), ({"mail": "c"}, Renaming), ([1], Order), (1, Order),
        ({"x": 1}, Line | dict[str, int]), ({"x": 1}, "no type at all"),
    ],
)  # fmt: skip
def test_what_is_known_or_free_passes(value: Any, annotation: Any) -> None:
    """A value of another kind is left to whoever decodes it."""
    refuse_unknown(value, annotation, "the input order")


def test_stored_values_are_read_without_what_is_unknown() -> None:
    """Else no task of newer code could be read by older code, nor one of code that still had the field."""
    assert decode(b'{"sku":"a","gone":1}', Line) == Line("a")
