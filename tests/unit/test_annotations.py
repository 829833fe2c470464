"""An action, its undo and its probe fit together or are refused; arguments and results come as annotated."""

import asyncio
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, NewType, Protocol, TypedDict, runtime_checkable

import pydantic
import pytest

from makegood.declare.action import Action, Agent, Shared
from makegood.declare.outcomes import NOT_HAPPENED, NOTHING, Happened, NotHappened
from makegood.errors import DefinitionError, DuplicateNameError, PayloadError
from makegood.model.messages import Request
from makegood.payload.annotations import members, takes
from makegood.payload.codec import decode
from makegood.workflow.app import App


@dataclass
class Order:
    id: str
    cents: int = 1


@dataclass
class Refund:
    id: str


def agent(name: str = "payments", **limits: Any) -> Agent:
    return Agent(name, Shared("shop", **limits))


def request(doing: Any = "do", args: bytes = b'{"order":{"id":"o"},"hold":"h"}', **more: Any) -> Request:
    return Request(
        task=1, idx=0, doing=doing, attempt=1, app="shop", agent="payments", action="charge", step="charge", round=1,
        within=30.0, args=args, **more,
    )  # fmt: skip


def charge(order: Order, hold: str) -> str:
    return f"{order.id} {hold}"


def refund(order: Order, *, result: str | None) -> None: ...


def find(order: Order, hold: str) -> Happened[str] | NotHappened:
    return NOT_HAPPENED


def declared(fn: Any = charge, **options: Any) -> Action[..., Any]:
    """Declare a function afresh."""
    action: Action[..., Any] = agent().action(**{"complete_within": "30s", **options})(fn)
    return action


# -- undo and probe ----------------------------------------------------------------------------------------------------------


def no_result(order: Order) -> None: ...


def result_by_position(result: str | None, order: Order) -> None: ...


def unknown_parameter(orders: Order, *, result: str | None) -> None: ...


def catch_all(order: Order, *, result: str | None, **rest: object) -> None: ...


def other_type(order: Refund, *, result: str | None) -> None: ...


def result_of_other_type(*, result: int | None) -> None: ...


def result_never_none(*, result: str) -> None: ...


def result_yielded(*, result: str | None) -> Any:
    yield result


@pytest.mark.parametrize(
    ("undo", "pattern"),
    [
        (no_result, r"add `\*, result`, which is None when it is in doubt"),
        (result_by_position, r"add `\*, result`"),
        (unknown_parameter, "takes orders, which charge does not have: it may take order, hold"),
        (catch_all, r"\*\*rest: object is not passed by name"),
        (other_type, "takes order: Refund, but charge takes order: Order: annotate both alike"),
        (result_of_other_type, r"charge returns str.*annotate `result: str \| None`"),
        (result_never_none, r"None is passed when it is in doubt: annotate `result: str \| None`"),
        (result_yielded, "has a yield"),
        (None.__class__, "decorate a function"),
    ],
)
def test_an_undo_that_does_not_fit_is_refused(undo: Any, pattern: str) -> None:
    with pytest.raises(DefinitionError, match=rf"^the undo of shop/payments/charge.*{pattern}"):
        declared().undo(undo)


def fewer(hold: str) -> Happened[str] | NotHappened:
    return NOT_HAPPENED


def other_answer(order: Order, hold: str) -> Happened[int] | NotHappened:
    return NOT_HAPPENED


def bare_answer(order: Order, hold: str) -> str | None: ...


def extra(order: Order, hold: str, deep: bool) -> Happened[str] | NotHappened:
    return NOT_HAPPENED


def asks_for_result(order: Order, *, result: str) -> Happened[str] | NotHappened:
    return NOT_HAPPENED


def untyped(order, hold):  # type: ignore[no-untyped-def]  # noqa: ANN001
    return NOT_HAPPENED


@pytest.mark.parametrize(
    ("probe", "pattern"),
    [
        (
            other_answer,
            r"answers mg\.Happened\(result\) or mg\.NOT_HAPPENED, so annotate `-> mg\.Happened\[str\] \| mg\.NotHappened`",
        ),
        (bare_answer, r"mg\.NOT_HAPPENED"),
        (extra, "takes deep, which charge does not have"),
        (asks_for_result, "takes result, which charge does not have"),
    ],
)
def test_a_probe_that_does_not_fit_is_refused(probe: Any, pattern: str) -> None:
    with pytest.raises(DefinitionError, match=rf"^the probe of shop/payments/charge.*{pattern}"):
        declared().probe(probe)


@pytest.mark.parametrize("probe", [find, fewer, untyped])
def test_a_probe_that_fits_is_taken(probe: Any) -> None:
    action = declared()
    assert action.probe(probe) is probe
    assert action._prepare(request("probe"))[0] is probe


def test_two_undos_and_two_probes_are_refused() -> None:
    action = declared()
    action.undo(refund)
    action.probe(find)
    with pytest.raises(DuplicateNameError, match="already has an undo"):
        action.undo(refund)
    with pytest.raises(DuplicateNameError, match="already has a probe"):
        action.probe(find)


@pytest.mark.parametrize("options", [{"undo": NOTHING}, {"no_return": True}])
def test_no_undo_for_what_needs_none(options: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match="so it cannot have an undo: remove one of the two"):
        declared(**options).undo(refund)


@pytest.mark.parametrize("options", [{"complete_within": 0}, {"complete_within": "soon"}, {"recover": 3}])
def test_the_options_of_an_undo_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(
        DefinitionError, match=r"the undo of shop/payments/charge: (complete_within|recover)="
    ):
        declared().undo(**options)


class Identified(Protocol):
    id: str


@runtime_checkable
class Findable(Protocol):
    id: str


def test_wider_and_missing_annotations_fit() -> None:
    def loose(hold, order: Order | None, *, result):  # type: ignore[no-untyped-def]  # noqa: ANN001
        pass

    action = declared()
    action.undo(loose)
    assert action._prepare(request("undo"))[1] == {"order": Order("o"), "hold": "h", "result": None}


@pytest.mark.parametrize("protocol", [Identified, Findable])
def test_a_protocol_is_no_class_that_could_be_asked_about(protocol: Any) -> None:
    """An undo may say of an argument only what it needs of it; Python raises when it is asked about such a class."""

    def narrow(order, *, result):  # type: ignore[no-untyped-def]  # noqa: ANN001
        pass

    narrow.__annotations__ = {"order": protocol | None, "result": str | None}
    action = declared()
    action.undo(narrow)
    assert action._prepare(request("undo"))[1] == {"order": Order("o"), "result": None}


Cents = NewType("Cents", int)
Key = Annotated[int | str, "of the row"]


@pytest.mark.parametrize(
    ("target", "source", "fits"),
    [
        (str, str, True),
        (str, int, False),
        (float, int, True),
        (Any, str, True),
        (object, str, True),
        (str, Any, True),
        (str | None, str, True),
        (str, str | None, False),
        (Annotated[int, "positive"], Cents, True),
        (list[int], list[str], False),
        (list[int], list, True),
        (dict[str, int], dict[str, int], True),
        (tuple[int, ...], tuple[int, ...], True),
        (int, bool, True),
        (Order, Refund, False),
        (None, type(None), True),
        (Key | None, int, True),
        (int | str | None, Key | None, True),
        (dict[str, Key | None], dict[str, int], True),
        (Key | None, bytes, False),
        (NewType("Found", Key) | None, str, True),
    ],
)
def test_whether_annotations_fit(target: Any, source: Any, fits: bool) -> None:
    assert takes(target, source) is fits


def test_members_of_unions() -> None:
    assert members(Annotated[int | None, "x"]) == (int, type(None))
    assert members(None) == (type(None),)
    assert members(Key | None) == (int, str, type(None))


# -- annotations that are not known yet ----------------------------------------------------------------------------------------


def later(order: "Later") -> "Later":
    return order


def test_annotations_may_name_what_is_defined_further_down() -> None:
    action = declared(later)
    assert action._prepare(request(args=b'{"order":{"id":"x"}}')) == (later, {"order": Later("x")})
    assert action._fit().returns is Later


@dataclass
class Later:
    id: str


def test_classes_local_to_a_function_are_seen_from_the_decorator() -> None:
    @dataclass
    class Local:
        id: str

    @agent().action(complete_within=1)
    def take(order: "Local") -> None: ...

    _, kwargs = take._prepare(request(args=b'{"order":{"id":"x"}}'))
    assert kwargs == {"order": Local("x")}


def unknown(order: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821


def test_a_class_local_to_a_function_hides_one_of_its_module() -> None:
    """As Python says it: the module's was taken, whose values are others."""

    @dataclass
    class Later:
        number: int

    app = App("shop")

    @app.agent("desk").action(complete_within=1, undo=NOTHING)
    def take(order: "Later") -> "list[Later]":
        return [order]

    @app.workflow
    def run(order: "Later") -> "list[Later]":
        return take(order)

    plan = run.plan(Later(3))
    assert decode(plan.inputs[0], take._fit().annotations["order"]) == Later(3)
    assert plan.returns_type == list[Later]


def test_an_annotation_that_nobody_knows_is_refused_when_first_needed() -> None:
    action = declared(unknown)
    with pytest.raises(
        DefinitionError,
        match=r"shop/payments/unknown: .*'Nowhere' is not defined.*not under `if TYPE_CHECKING:`",
    ):
        action._fit()
    with pytest.raises(PayloadError, match="Nowhere"):
        action._prepare(request(args=b"{}"))


def either(order: Order | Refund) -> None: ...


def test_an_annotation_that_json_cannot_be_decoded_to_is_refused_at_once() -> None:
    with pytest.raises(
        DefinitionError, match=r"the parameter order of shop/payments/either: JSON cannot be decoded"
    ):
        declared(either)


# -- what an agent does with it --------------------------------------------------------------------------------------------------


def test_arguments_are_decoded_to_what_the_function_takes() -> None:
    fn, kwargs = declared()._prepare(request())
    assert fn(**kwargs) == "o h"
    assert kwargs == {"order": Order("o", 1), "hold": "h"}


class Basket(pydantic.BaseModel):
    skus: list[str]


class Extra(TypedDict):
    gift: bool


def pack(basket: Basket, extra: Extra, loose, *, fast: bool = False) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    pass


def test_models_typed_dicts_untyped_and_defaulted_parameters() -> None:
    args = b'{"basket":{"skus":["a"]},"extra":{"gift":true},"loose":[1,{"a":null}],"gone":1}'
    _, kwargs = declared(pack)._prepare(request(args=args))
    assert kwargs == {"basket": Basket(skus=["a"]), "extra": {"gift": True}, "loose": [1, {"a": None}]}


@pytest.mark.parametrize(
    ("args", "pattern"),
    [
        (
            b'{"order":{"id":3},"hold":"h"}',
            r"^shop/payments/charge: Expected `str`, got `int` - at `\$\.order\.id`",
        ),
        (b'{"order":{"id":"o"}}', "missing required field `hold`"),
    ],
)
def test_arguments_that_do_not_fit_the_code_any_more_are_refused(args: bytes, pattern: str) -> None:
    with pytest.raises(PayloadError, match=pattern):
        declared()._prepare(request(args=args))


def test_an_undo_is_given_what_it_wants_and_the_result() -> None:
    action = declared()
    action.undo(refund)
    fn, kwargs = action._prepare(request("undo", result=b'"pay-7"'))
    assert (fn, kwargs) == (refund, {"order": Order("o"), "result": "pay-7"})
    assert action._prepare(request("undo", in_doubt=True))[1]["result"] is None
    assert action._prepare(request("undo", result=b"null", args=b'{"order":{"id":"o"}}'))[1]["result"] is None


def parcel(order: Order) -> Order:
    return order


def unpack(*, result: Order | None) -> None: ...


def test_the_result_is_decoded_to_what_the_action_returns() -> None:
    action = declared(parcel)
    action.undo(unpack)
    assert action._prepare(request("undo", result=b'{"id":"p"}'))[1] == {"result": Order("p")}
    assert action._decode(b'{"id":"p","cents":2}') == Order("p", 2)
    with pytest.raises(PayloadError, match="the result of shop/payments/parcel"):
        action._decode(b"3")
    with pytest.raises(PayloadError, match="the undo of shop/payments/parcel"):
        action._prepare(request("undo", result=b"3"))


@pytest.mark.parametrize("doing", ["undo", "probe"])
def test_what_the_code_declares_no_more_is_an_operators_matter(doing: str) -> None:
    with pytest.raises(PayloadError, match=rf"no longer declares its {doing}: declare it again"):
        declared()._prepare(request(doing))


def test_results_are_kept_within_the_apps_limit() -> None:
    action = agent(payload_limit=50).action(complete_within=1)(charge)
    assert action._encode("pay-7") == b'"pay-7"'
    with pytest.raises(PayloadError, match=r"charge is Order, its annotation says str: Expected `str`"):
        action._encode(Order("o"))
    with pytest.raises(
        PayloadError, match=r"the result of shop/payments/charge has 62 bytes.*the limit is 50"
    ):
        action._encode("x" * 60)
    with pytest.raises(PayloadError, match="object is not known to JSON"):
        action._encode(object())


def test_a_coroutine_returned_by_a_wrapped_function_is_no_result() -> None:
    async def slow() -> None: ...

    @functools.wraps(slow)
    def wrapped() -> Any:
        return slow()

    with pytest.raises(PayloadError, match="returned a coroutine"):
        declared(wrapped)._encode(wrapped())


def test_a_decorated_function_keeps_its_parameters() -> None:
    def logged(fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def around(*args: Any, **kwargs: Any) -> Any:
            return fn(*args, **kwargs)

        return around

    fn, kwargs = declared(logged(charge))._prepare(request())
    assert fn(**kwargs) == "o h"


def test_unit_tests_call_the_function_itself() -> None:
    async def slow(order: Order) -> str:
        return order.id

    action = agent().action(complete_within=1)(slow)
    assert asyncio.run(action.fn(Order("o"))) == "o"


def test_an_undo_of_a_step_older_than_a_parameter_is_given_a_default() -> None:
    """The action's, when it has none of its own. Both are asked for a step that was submitted before the parameter was there."""

    def pay(order: Order, currency: str = "EUR", kind: str = "card", *, place: str) -> str:
        return currency

    def back(
        order: Order, currency: str, kind: str = "cash", place: str = "here", *, result: str | None
    ) -> None: ...

    def look(currency: str) -> Happened[str] | NotHappened:
        return NOT_HAPPENED

    action = declared(pay)
    action.undo(back)
    action.probe(look)
    old = b'{"order":{"id":"o"}}'
    fn, kwargs = action._prepare(request("undo", args=old))
    assert (fn(**kwargs), kwargs) == (None, {"order": Order("o"), "currency": "EUR", "result": None})
    assert action._prepare(request("probe", args=old))[1] == {"currency": "EUR"}
    new = b'{"order":{"id":"o"},"currency":"USD","kind":"bank","place":"there"}'
    assert action._prepare(request("undo", args=new))[1]["currency"] == "USD"
    with pytest.raises(PayloadError, match="missing required field `place`"):
        action._prepare(request(args=old))


@dataclass
class Odd:
    id: str

    def __post_init__(self) -> None:
        raise KeyError(self.id)


def odd(thing: Odd) -> Odd:
    return thing


def test_what_a_class_raises_of_its_own_is_told() -> None:
    """Msgspec passes on what is neither ValueError nor TypeError; an attempt must not be silent for it."""
    action = declared(odd)
    with pytest.raises(PayloadError, match=r"^shop/payments/odd: KeyError: 'o'"):
        action._prepare(request(args=b'{"thing":{"id":"o"}}'))
    with pytest.raises(PayloadError, match="the result of shop/payments/odd: KeyError: 'o'"):
        action._decode(b'{"id":"o"}')
    with pytest.raises(
        PayloadError, match="the result of shop/payments/odd is dict, its annotation says Odd: KeyError"
    ):
        action._encode({"id": "o"})
