"""A pydantic model whose JSON would not read back to the same values is refused: asterisks are no password."""

import dataclasses
import enum
import pathlib
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import pydantic
import pytest

from makegood.errors import DefinitionError, PayloadError
from makegood.payload.codec import decode, encode
from makegood.payload.pydantic_models import doubt, refuse_hidden
from tests.unit.test_nested_annotations import accepting, returning


class Login(pydantic.BaseModel):
    user: str
    password: pydantic.SecretStr


class Logins(pydantic.BaseModel):
    all: dict[str, list[Login]] = {}


@dataclasses.dataclass
class Holder:
    login: Login | None = None


class Loose(TypedDict):
    login: Login


class Pair(NamedTuple):
    one: int
    secret: pydantic.SecretBytes


class Tree(pydantic.BaseModel):
    children: "list[Tree]" = []
    pin: pydantic.Secret[int] | None = None


def revealed(secret: pydantic.SecretStr) -> str:
    return secret.get_secret_value()


class Kept(pydantic.BaseModel):
    password: pydantic.SecretStr

    @pydantic.field_serializer("password")
    def show(self, secret: pydantic.SecretStr) -> str:
        return revealed(secret)


class KeptToo(pydantic.BaseModel):
    password: Annotated[pydantic.SecretStr, pydantic.PlainSerializer(revealed, when_used="json")]


class Left(pydantic.BaseModel):
    n: int
    note: str = pydantic.Field(default="", exclude=True)


class Renamed(pydantic.BaseModel):
    n: int = pydantic.Field(serialization_alias="N")


class Computed(pydantic.BaseModel, extra="forbid"):
    n: int

    @pydantic.computed_field  # type: ignore[prop-decorator]  # as pydantic's own documentation writes it
    @property
    def twice(self) -> int:
        return 2 * self.n


class Split(pydantic.BaseModel):
    words: list[str]

    @pydantic.field_validator("words", mode="before")
    @classmethod
    def split(cls, text: Any) -> Any:
        return text.split(",") if isinstance(text, str) else sorted(text.keys())


class Plain(pydantic.BaseModel):
    n: int = pydantic.Field(alias="N")
    anything: Any = None


class More(Plain):
    m: int = 1


class Placed(pydantic.BaseModel):
    path: pathlib.Path


class Cat(pydantic.BaseModel):
    name: str


class Dog(pydantic.BaseModel):
    name: str


class Colour(enum.Enum):
    RED = "red"


class Pets(pydantic.BaseModel):
    pets: list[Cat | Dog] = []
    colour: Colour | str | None = None


class Car(pydantic.BaseModel):
    kind: Literal["car"] = "car"


class Van(pydantic.BaseModel):
    kind: Literal["van"] = "van"


class Plainly(pydantic.BaseModel):
    either: int | str | None = None
    whole: list[int] | float | bool = 1.5
    told: Annotated[Car | Van, pydantic.Field(discriminator="kind")] | None = None
    model: "Plain | str | None" = None


class Keyed(pydantic.BaseModel):
    by_place: dict[tuple[int, int], str] = {}
    either: dict[int | str, int] = {}


class Read(pydantic.BaseModel):
    numbers: pydantic.Json[list[int]]


class Place(NamedTuple):
    x: int


class Placeable(pydantic.BaseModel):
    place: list[int] | Place


class Counted(pydantic.BaseModel):
    n: int
    total: int = 0

    @pydantic.model_validator(mode="after")
    def count(self) -> "Counted":
        self.total += self.n
        return self


class Trimmed(pydantic.BaseModel):
    text: Annotated[str, pydantic.AfterValidator(str.strip)]


class Money:
    """It does not say when two are equal."""

    def __init__(self, cents: int) -> None:
        self.cents = cents


class Array(Money):
    def __eq__(self, other: object) -> Any:
        raise ValueError("the truth value of an array is ambiguous")

    __hash__ = None  # type: ignore[assignment]


def money(cls: Any) -> Any:
    return Annotated[
        cls,
        pydantic.BeforeValidator(lambda value: cls(value) if isinstance(value, int) else value),
        pydantic.PlainSerializer(lambda value: value.cents),
    ]


class Priced(pydantic.BaseModel, arbitrary_types_allowed=True):
    price: money(Money)  # type: ignore[valid-type]  # made at run time
    prices: money(Array)  # type: ignore[valid-type]


class Sequences(pydantic.BaseModel):
    numbers: Sequence[int]
    more: "dict[str, Sequences]" = {}


@pytest.mark.parametrize(
    ("annotation", "place"),
    [
        (Login, r"Login\.password is a SecretStr"), (Logins, r"Login\.password"), (list[Login], r"Login\.password"), (Holder, r"Login\.password"),
        (Loose | None, r"Login\.password"), (Pair, r"Pair\.secret is a SecretBytes"), (Tree, r"Tree\.pin is a "), (pydantic.SecretStr, "it is a SecretStr"),
        (Annotated[Login, "said"], r"Login\.password"),
    ],
)  # fmt: skip
def test_a_secret_is_refused_where_it_is_declared(annotation: Any, place: str) -> None:
    """Wherever in an annotation it is; with what to do instead."""
    pattern = rf": {place}.*, whose JSON is asterisks; pass on where it is kept"
    with pytest.raises(DefinitionError, match=rf"^the result of shop/desk/give{pattern}"):
        returning(annotation)
    with pytest.raises(DefinitionError, match=rf"^the input value of shop\.take{pattern}"):
        accepting(annotation)


@pytest.mark.parametrize(
    "value",
    [
        Kept(password=pydantic.SecretStr("p")), KeptToo(password=pydantic.SecretStr("p")), Left(n=1), Plain(N=1, anything=(1, 2)), Placed(path=pathlib.Path("/x")),
        Pets(pets=[Cat(name="a")]), Pets(colour="blue"), Trimmed(text=" a "), Priced(price=5, prices=6), Sequences(numbers=(1, 2), more={"a": Sequences(numbers=(3,))}),
        Keyed(either={"a": 1}),
    ],
)  # fmt: skip
def test_what_reads_back_to_the_same_is_kept(value: Any) -> None:
    """A serializer that shows the secret is the user's own word; an excluded field may hold its default."""
    data = returning(type(value))._encode(value)
    assert accepting(type(value)).plan(value).inputs == (data,)
    assert type(decode(data, type(value))) is type(value)
    assert refuse_hidden(type(value), "it") is None  # type: ignore[func-returns-value]


@pytest.mark.parametrize(
    ("value", "pattern"),
    [
        (
            Login(user="a", password=pydantic.SecretStr("p")),
            r"Login\.password would come back with another value",
        ),
        (Holder(Login(user="a", password=pydantic.SecretStr("p"))), r"Login\.password would come back"),
        ([Tree(pin=pydantic.Secret[int](7))], r"Tree\.|Input should be a valid integer"),
        (Left(n=1, note="n"), r"Left\.note would come back"),
        (Renamed(n=1), "n: Field required"),
        (Computed(n=1), "twice: Extra inputs are not permitted"),
        (
            Pets(pets=[Dog(name="a")]),
            r"Pets\.pets would come back with another value.*a union with a discriminator",
        ),
        (Pets(colour=Colour.RED), r"Pets\.colour would come back"),
        (
            Counted(n=1),
            r"Counted\.total would come back with another value.*a validator that leaves its own values alone",
        ),
        (Keyed(by_place={(1, 2): "a"}), "Input should be a valid array"),
        (Placeable(place=Place(1)), r"Placeable\.place would come back"),
        (Keyed(either={1: 2}), r"Keyed\.either would come back"),
        (Read(numbers="[1]"), "numbers: JSON input should be string"),  # type: ignore[arg-type]  # as pydantic wants it
        (Split(words={"b": 1}), "keys"),  # type: ignore[arg-type]  # what its validator makes of it
    ],
)
def test_a_value_that_would_come_back_as_another_is_refused(value: Any, pattern: str) -> None:
    """Also where no annotation says what it is."""
    with pytest.raises(PayloadError, match=pattern):
        encode(value)


def test_a_value_is_read_as_its_annotation_says_not_as_its_own_class() -> None:
    """A subclass may have fields that this class forbids."""

    class Strict(pydantic.BaseModel, extra="forbid"):
        n: int

    class Wider(Strict):
        m: int = 1

    assert accepting(Strict).plan(Strict(n=1)).inputs
    with pytest.raises(PayloadError, match="m: Extra inputs are not permitted"):
        accepting(Strict).plan(Wider(n=1))


def test_plain_models_are_not_read_back() -> None:
    """They cost nothing more."""
    assert [doubt(model) for model in (Plain, More, Plainly, Login, Logins, Left, Renamed, Computed, Split, Pets)] == [
        "", "", "", "values", "values", "values", "reading", "reading", "reading", "values",
    ]  # fmt: skip
