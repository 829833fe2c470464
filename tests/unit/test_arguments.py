"""A call that does not fit is refused where it is written, by an error of makegood's that lists what there is and names what was meant."""

import asyncio
import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import pytest

import makegood as mg
from makegood import keys
from makegood.base.arguments import judge_calls, misfit
from makegood.console import create_app
from makegood.console.options import ConsoleOptions
from makegood.election import Election, open_leases
from makegood.errors import ConfigError, DefinitionError, MakegoodError
from makegood.telemetry import Telemetry
from makegood.testing import crash_everywhere, simulate
from makegood.workflow.verbs import branches, each, parallel, when

LEASES = open_leases("memory:arguments")
shop = mg.App("shop")
payments = shop.agent("payments")


@payments.action(complete_within="1m")
def charge(order: str, hold: str) -> str:
    return order + hold


@charge.undo
def refund(order: str, *, result: str | None) -> None: ...


@shop.workflow()
def place_order(order: str) -> str:
    return charge(order, "hold")


MISSPELT: list[tuple[Any, str, str]] = [
    (mg.Retry, "trys", "tries"), (mg.Recover, "treshold", "threshold"), (mg.Breaker, "failure", "failures"),
    (mg.Options, "slot", "slots"), (mg.Filter, "state", "states"), (keys.Preset, "keep", "keeps"),
    (mg.App, "step_limits", "step_limit"), (shop.agent, "concurency", "concurrency"), (shop.workflow, "on_failiure", "on_failure"),
    (shop.inbox, "leese", "lease"), (payments.action, "complet_within", "complete_within"), (charge.undo, "recovr", "recover"),
    (charge.probe, "fence", "fences"), (each, "limits", "limit"), (when, "otherwhise", "otherwise"),
    (mg.Client, "poll_evry", "poll_every"), (mg.SyncClient, "poll_evry", "poll_every"), (mg.Node, "role", "roles"),
    (ConsoleOptions, "listn", "listen"), (open_leases, "timout", "timeout"), (mg.Happened, "reslt", "result"),
    (crash_everywhere, "kind", "kinds"), (simulate, "seed", "seeds"), (create_app, "user", "users"),
    (place_order.plan("a").with_, "kee", "key"), (Telemetry, "trace", "traces"), (Election, "helth", "health"),
    (lambda **options: Election.sync("lead", LEASES, **options).__enter__(), "renw", "renew"),
    (lambda **options: mg.SyncNode(shop, **options).start(), "role", "roles"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "wrong", "right"), MISSPELT)
def test_a_misspelt_option_is_refused_with_the_one_that_was_meant(
    call: Callable[..., Any], wrong: str, right: str
) -> None:
    with pytest.raises(
        MakegoodError, match=rf"there is no option '{wrong}' \(did you mean '{right}'\?\)"
    ) as error:
        call(**{wrong: 1})
    assert error.value.__cause__ is None


@pytest.mark.parametrize(
    ("call", "args"),
    [(mg.Retry, (3,)), (mg.Breaker, (3, "1s")), (shop.agent, ()), (parallel, ()), (branches, ())],
)
def test_whatever_else_does_not_fit_is_of_the_family_too(
    call: Callable[..., Any], args: tuple[object, ...]
) -> None:
    with pytest.raises(MakegoodError):
        call(*args)


def test_a_misspelt_option_of_replace_is_refused_too() -> None:
    wrong: Any = {"limt": 3}
    with pytest.raises(ConfigError, match="did you mean 'limit'"):
        dataclasses.replace(keys.SQUARE, **wrong)


# -- the decorator -----------------------------------------------------------------------------------------------------


@judge_calls(ConfigError, values=True)
class Shelf:
    """Takes all kinds of values."""

    def __init__(self, size: int = 1) -> None:
        self.size = size

    def put(
        self, name: str, count: int = 1, *, weight: float | None = None, kind: Literal["a", "b"] = "a"
    ) -> str:
        return f"{name} {count} {weight} {kind}"

    def many(
        self,
        names: Sequence[str],
        by: Mapping[str, int] | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> int:
        return len(names)

    def each(self, *names: str) -> int:
        return len(names)

    async def wait(self, seconds: float) -> float:
        return seconds

    def fail(self) -> None:
        raise TypeError("its own")


@pytest.mark.parametrize(
    ("args", "options"),
    [
        (("x",), {}),
        (("x", 2), {"weight": 2}),
        (("x",), {"weight": None, "kind": "b"}),
        (("x",), {"count": 3}),
    ],
)
def test_what_fits_is_passed_on(args: tuple[Any, ...], options: dict[str, Any]) -> None:
    assert Shelf().put(*args, **options).startswith("x ")


@pytest.mark.parametrize(
    ("args", "options", "words"),
    [
        ((3,), {}, r"put\(\): name=3: pass a text"),
        ((b"x",), {}, r"name=b'x': pass a text"),
        ((None,), {}, r"name=None: pass a text"),
        (("x", True), {}, r"count=True: pass a whole number"),
        (("x", 1.0), {}, r"count=1.0: pass a whole number"),
        (("x",), {"weight": "1"}, r"weight='1': pass a number or None"),
        (("x",), {"kind": "c"}, r"kind='c': pass 'a' or 'b'"),
        (
            (),
            {"nme": "x"},
            r"put\(\): there is no option 'nme' \(did you mean 'name'\?\); name is missing; there are name, count",
        ),
    ],
)
def test_what_does_not_fit_is_refused(args: tuple[Any, ...], options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Shelf().put(*args, **options)


def test_a_text_is_not_taken_for_a_list_of_its_letters() -> None:
    wrong: Any = "abc"
    with pytest.raises(ConfigError, match="names='abc': pass a list or tuple"):
        Shelf().many(wrong)
    wrong = 3
    with pytest.raises(ConfigError, match="by=3: pass a mapping or None"):
        Shelf().many([], by=wrong)
    with pytest.raises(ConfigError, match="tell=3: pass a function or None"):
        Shelf().many([], tell=wrong)
    assert Shelf().many(("a",), {}, print) == 1


def test_each_of_many_arguments_is_judged() -> None:
    wrong: Any = 3
    assert Shelf().each("a", "b") == 2
    with pytest.raises(ConfigError, match="names=3: pass a text"):
        Shelf().each("a", wrong)


async def test_an_async_def_is_marked_as_one_and_refused_at_the_call() -> None:
    assert asyncio.iscoroutinefunction(Shelf.wait)
    assert asyncio.iscoroutinefunction(Shelf().wait)
    assert await Shelf().wait(2) == 2
    wrong: Any = "2"
    with pytest.raises(ConfigError, match="seconds='2': pass a number"):
        _ = Shelf().wait(wrong)


def test_a_call_that_fitted_says_nothing_of_values_of_other_types() -> None:
    """What fits is remembered by the types of a call: 1 and True, or two kinds of mappings, are not the same."""
    wrong: Any = True
    for _ in range(2):
        Shelf(1)
        with pytest.raises(ConfigError, match="size=True: pass a whole number"):
            Shelf(wrong)


def test_a_type_error_of_the_function_itself_is_passed_on() -> None:
    with pytest.raises(TypeError, match="its own"):
        Shelf().fail()


def test_signature_and_documentation_stay() -> None:
    assert str(inspect.signature(Shelf)) == "(size: int = 1) -> None"
    assert list(inspect.signature(mg.Client.submit).parameters)[:3] == ["self", "workflow", "inputs"]
    assert mg.Client.submit.__doc__


def test_all_mistakes_of_a_call_are_named_at_once() -> None:
    def ship(order: str, *, hold: str, by: str = "") -> None: ...

    mistakes = misfit(inspect.signature(ship), ["a", "b"], {"hodl": 1, "order": 2}, noun="parameter")
    assert mistakes == (
        "there is no parameter 'hodl' (did you mean 'hold'?); it takes 1 parameter by position, not 2; "
        "order is passed twice, by position and by name; hold is missing; there are order, hold, by"
    )
    assert misfit(inspect.signature(ship), ["a"], {"hold": "b"}, noun="parameter") == ""


# -- Later -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wait",
    [
        "soon",
        "",
        "-5",
        "5 minutes",
        -5,
        -0.1,
        None,
        float("nan"),
        float("inf"),
        True,
        b"5",
        object(),
        [5],
        "Mon",
    ],
)
def test_a_wait_that_says_nothing_is_refused_where_it_is_made(wait: Any) -> None:
    with pytest.raises(ConfigError, match=r"Later\(.*headers\.get\(\"Retry-After\", \"5s\"\)"):
        mg.Later(wait)


@pytest.mark.parametrize(
    "wait", [0, 5, 1.5, "5", "1.5", "200ms", "5m", " 7 ", "Thu, 01 Jan 2026 00:01:00 GMT", 10**400, "9" * 400]
)
def test_every_wait_that_a_service_may_ask_for_is_taken(wait: Any) -> None:
    assert mg.Later(wait).wait == wait


def test_an_undo_that_does_not_fit_is_still_a_definition_error() -> None:
    wrong: Any = {"complete": 3}
    with pytest.raises(DefinitionError):
        charge.undo(**wrong)
