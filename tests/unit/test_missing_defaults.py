"""A value that was read and is passed on says the same: defaults that JSON did not name are not lost on the way."""

from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, NotRequired, TypedDict, TypeVar

import attrs
import msgspec
import pytest

import makegood as mg
from makegood.payload.codec import decode, decoder, encode
from makegood.payload.missing_defaults import completer


@dataclass
class Item:
    """What is ordered."""

    sku: str
    count: int = 1


@dataclass(frozen=True)
class Order:
    """With defaults of every kind, and what has defaults inside."""

    id: str
    items: list[Item] = field(default_factory=list)
    gift: Item | None = None
    by_name: dict[str, Item] = field(default_factory=dict)
    card: str = "good"


@dataclass(slots=True)
class Slotted:
    """It holds its defaults by itself."""

    id: str
    item: Item = field(default_factory=lambda: Item("lamp"))


class Packed(msgspec.Struct):
    """A Struct with a dataclass in it."""

    item: Item


@attrs.define
class Drawn:
    """An attrs class with a dataclass in it."""

    item: Item


class Pair(NamedTuple):
    """A named tuple with a dataclass in it."""

    item: Item
    n: int = 2


class Chain(msgspec.Struct):
    """It holds another of its kind."""

    item: Item | None = None
    next: "Chain | None" = None


@pytest.mark.parametrize(
    "reader", [decode, lambda data, kind: decoder(kind, "it")(data)], ids=["decode", "decoder"]
)
@pytest.mark.parametrize(
    ("kind", "text", "whole"),
    [
        (Item, b'{"sku":"a"}', b'{"sku":"a","count":1}'),
        (
            Order,
            b'{"id":"o","items":[{"sku":"a"}],"gift":{"sku":"b"},"by_name":{"x":{"sku":"c"}}}',
            (
                b'{"id":"o","items":[{"sku":"a","count":1}],"gift":{"sku":"b","count":1},'
                b'"by_name":{"x":{"sku":"c","count":1}},"card":"good"}'
            ),
        ),
        (Slotted, b'{"id":"o","item":{"sku":"a"}}', b'{"id":"o","item":{"sku":"a","count":1}}'),
        (Packed, b'{"item":{"sku":"a"}}', b'{"item":{"sku":"a","count":1}}'),
        (Drawn, b'{"item":{"sku":"a"}}', b'{"item":{"sku":"a","count":1}}'),
        (tuple[Item, int], b'[{"sku":"a"},2]', b'[{"sku":"a","count":1},2]'),
        (Pair, b'[{"sku":"a"}]', b'[{"sku":"a","count":1},2]'),
        (Any, b'{"sku":"a"}', b'{"sku":"a"}'),
    ],
)
def test_defaults_are_written_again(reader: Any, kind: Any, text: bytes, whole: bytes) -> None:
    """Read and written again, a value has every member that one made by hand has."""
    assert encode(reader(text, kind)) == whole


def test_a_class_that_holds_itself_can_be_read() -> None:
    """The look at the types ends, and finds what lies behind."""
    assert (
        encode(decoder(Chain, "it")(b'{"next":{"item":{"sku":"a"}}}'))
        == b'{"item":null,"next":{"item":{"sku":"a","count":1},"next":null}}'
    )


def test_only_readers_that_need_it_pay() -> None:
    """Types without such classes are read by msgspec alone."""
    for kind in (dict[str, int], Slotted.__annotations__["id"], list[str], str, Any):
        assert isinstance(getattr(decoder(kind, "it"), "__self__", None), msgspec.json.Decoder)
    assert not hasattr(decoder(list[Item], "it"), "__self__")
    assert completer(msgspec.inspect.type_info(Slotted.__annotations__["id"])) is None


class Tree(msgspec.Struct):
    """It holds others of its kind in a list, in a dict by key, and in a union."""

    item: Item
    branches: "list[Tree]" = []
    named: "dict[str, Tree | list[Item] | None]" = {}


class Card(TypedDict):
    """Keys that may be missing, with a dataclass in one."""

    item: NotRequired[Item]
    note: str


@dataclass
class Marked(Item):
    """It adds an attribute of its own, which is no field."""

    note: str = "none"

    def __post_init__(self) -> None:
        self.seen = True


@pytest.mark.parametrize(
    ("kind", "text", "whole"),
    [
        (
            Tree,
            b'{"item":{"sku":"a"},"branches":[{"item":{"sku":"b"}}],"named":{"x":{"item":{"sku":"c"}},"y":null,"z":[{"sku":"d"}]}}',
            (
                b'{"item":{"sku":"a","count":1},"branches":[{"item":{"sku":"b","count":1},"branches":[],"named":{}}],'
                b'"named":{"x":{"item":{"sku":"c","count":1},"branches":[],"named":{}},"y":null,"z":[{"sku":"d","count":1}]}}'
            ),
        ),
        (Card, b'{"item":{"sku":"a"},"note":"n"}', b'{"item":{"sku":"a","count":1},"note":"n"}'),
        (Card, b'{"note":"n"}', b'{"note":"n"}'),
        (dict[str, list[Item | None]], b'{"x":[null,{"sku":"a"}]}', b'{"x":[null,{"sku":"a","count":1}]}'),
        (tuple[Item, ...], b'[{"sku":"a"}]', b'[{"sku":"a","count":1}]'),
        (Marked, b'{"sku":"a"}', b'{"sku":"a","count":1,"note":"none"}'),
    ],
)
def test_wherever_the_dataclass_is(kind: Any, text: bytes, whole: bytes) -> None:
    """In lists, dicts, tuples, unions, keys that may be missing, and in the class itself."""
    assert decode(encode(decode(text, kind)), Any) == decode(whole, Any)


T = TypeVar("T")


@dataclass
class Page(Generic[T]):
    """A generic class with a default."""

    first: T
    size: int = 10


class Sheet(msgspec.Struct, Generic[T]):
    """A generic Struct."""

    of: T


@pytest.mark.parametrize(
    ("annotation", "data"),
    [(Page[int], b'{"first":1}'), (Sheet[Page[str]], b'{"of":{"first":"a"}}'), (list[Page[Item]], b'[{"first":{"sku":"a"}}]')],
)  # fmt: skip
def test_defaults_of_generic_classes_are_not_lost(annotation: Any, data: bytes) -> None:
    assert b'"size":10' in encode(decode(data, annotation, subject="it"), subject="it")


@pytest.mark.parametrize(
    ("annotation", "value", "whole"),
    [
        (Item, {"sku": "a"}, b'{"sku":"a","count":1}'),
        (list[Item], [{"sku": "a"}], b'[{"sku":"a","count":1}]'),
        (dict[str, Item], {"x": {"sku": "a"}}, b'{"x":{"sku":"a","count":1}}'),
        (Item | None, {"sku": "a"}, b'{"sku":"a","count":1}'),
        (Item, Item("a"), b'{"sku":"a","count":1}'),
        (dict[str, int], {"b": 1, "a": 2}, b'{"b":1,"a":2}'),
        (Any, {"sku": "a"}, b'{"sku":"a"}'),
    ],
)
def test_a_result_that_is_plain_json_gets_the_defaults_of_its_type(
    annotation: Any, value: Any, whole: bytes
) -> None:
    """A later step may read a member that an action did not name."""

    def make() -> Any:
        """Make one."""

    make.__annotations__["return"] = annotation
    action = mg.App("shop").agent("desk").action(complete_within="5s", undo=mg.NOTHING)(make)
    assert action._encode(value) == whole
