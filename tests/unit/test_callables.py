"""Whatever is declared as an action, an undo, a probe, an inbox or a workflow runs, or is refused at the declaration with the remedy."""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from unittest import mock

import pytest

import makegood as mg
from makegood.errors import DefinitionError
from makegood.model.messages import TaskMessage
from tests.unit.test_attempt_runner import answer

RAN: list[str] = []


def charge(cents: int) -> Any:
    RAN.append("def")
    return mg.NOT_HAPPENED if cents < 0 else f"paid {cents}"


async def charge_async(cents: int) -> Any:
    await asyncio.sleep(0)
    RAN.append("async def")
    return mg.NOT_HAPPENED if cents < 0 else f"paid {cents}"


def charge_later(cents: int) -> Any:
    return charge_async(cents)


def charge_in(currency: str, cents: int) -> Any:
    return charge(cents)


async def charge_async_in(currency: str, cents: int) -> Any:
    return charge(cents)


def generator(cents: int) -> Iterator[int]:
    yield cents


async def async_generator(cents: int) -> AsyncIterator[int]:
    yield cents


def plain(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap it as decorators do that do not know ``async def``."""

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return wrapper


def hiding(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap it without ``functools.wraps``."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return wrapper


def by_position(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap it, and take arguments by position alone."""

    @functools.wraps(fn)
    def wrapper(*args: Any) -> Any:
        return fn(*args)

    return wrapper


def blocking(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Turn an ``async def`` into a ``def``."""

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return asyncio.run(fn(*args, **kwargs))

    return wrapper


def waiting(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Turn a ``def`` into an ``async def``."""

    @functools.wraps(fn)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return wrapper


class Bank:
    """Charges."""

    def charge(self, cents: int) -> Any:
        return charge(cents)

    async def charge_async(self, cents: int) -> Any:
        return charge(cents)

    @classmethod
    def of_class(cls, cents: int) -> Any:
        return charge(cents)

    @staticmethod
    def static(cents: int) -> Any:
        return charge(cents)

    @staticmethod
    async def static_async(cents: int) -> Any:
        return charge(cents)

    def __call__(self, cents: int) -> Any:
        return charge(cents)


class AsyncBank:
    """Charges, and is awaited."""

    async def __call__(self, cents: int) -> Any:
        return charge(cents)


class GeneratorBank:
    """Yields."""

    def __call__(self, cents: int) -> Iterator[int]:
        yield cents


WORKS: dict[str, Any] = {
    "def": charge,
    "async def": charge_async,
    "wrapped def": plain(charge),
    "wrapped async def": plain(charge_async),
    "wrapped twice": plain(plain(charge_async)),
    "async made blocking": blocking(charge_async),
    "blocking made async": waiting(charge),
    "bound method": Bank().charge,
    "bound async method": Bank().charge_async,
    "class method": Bank.of_class,
    "static method": Bank.__dict__["static"],
    "static async method": Bank.__dict__["static_async"],
    "partial": functools.partial(charge_in, "EUR"),
    "async partial": functools.partial(charge_async_in, "EUR"),
    "callable object": Bank(),
    "async callable object": AsyncBank(),
    "returns a coroutine": charge_later,
    "wrapped partial of a wrapper": plain(functools.partial(plain(charge_async_in), "EUR")),
    "autospec": mock.create_autospec(charge, side_effect=charge),
}
REFUSED: dict[str, tuple[Any, str]] = {
    "generator": (generator, "has a yield in it"),
    "async generator": (async_generator, "has a yield in it"),
    "wrapped generator": (plain(generator), "has a yield in it"),
    "partial generator": (functools.partial(generator), "has a yield in it"),
    "object that yields": (GeneratorBank(), "has a yield in it"),
    "context manager": (contextlib.contextmanager(generator), "has a yield in it.*context manager"),
    "async context manager": (contextlib.asynccontextmanager(async_generator), "has a yield in it"),
    "by position": (by_position(charge), r"by name: let it take \*\*kwargs"),
    "method without its object": (Bank.charge, "is a method of Bank, and nobody passes its self.*the method of an object"),
    "classmethod": (Bank.__dict__["of_class"], "no call reaches"),
    "cache": (functools.cache(charge), "is cached"),
    "lru_cache": (functools.lru_cache(charge_async), "is cached"),
    "wrapped cache": (plain(functools.cache(charge)), "is cached"),
    "singledispatch": (functools.singledispatch(charge), "singledispatch"),
    "mock": (mock.Mock(), "is declared with a mock"),
    "magic mock": (mock.MagicMock(), "is declared with a mock"),
    "async mock": (mock.AsyncMock(), "is declared with a mock"),
    "mock like a function": (mock.Mock(spec=charge), "is declared with a mock"),
    "class": (Bank, "decorate a function"),
}  # fmt: skip
OPTIONS: dict[str, Any] = {"complete_within": "1m", "retry": mg.NEVER, "name": "charge"}


def refund(*, result: Any) -> None:
    RAN.append("undo")


async def refund_async(*, result: Any) -> None:
    await asyncio.sleep(0)
    RAN.append("undo")


class Refunds:
    """Undoes."""

    def refund(self, *, result: Any) -> None:
        RAN.append("undo")

    async def __call__(self, *, result: Any) -> None:
        RAN.append("undo")


def refund_later(*, result: Any) -> Any:
    return refund_async(result=result)


UNDOS: dict[str, Any] = {
    "def": refund,
    "async def": refund_async,
    "wrapped def": plain(refund),
    "wrapped async def": plain(refund_async),
    "async made blocking": blocking(refund_async),
    "blocking made async": waiting(refund),
    "bound method": Refunds().refund,
    "async callable object": Refunds(),
    "async partial": functools.partial(refund_async),
    "returns a coroutine": refund_later,
}
PROBES = ["wrapped async def", "static async method", "bound async method", "returns a coroutine", "partial"]


@pytest.mark.parametrize("form", WORKS)
async def test_it_works_as_an_action(form: str) -> None:
    action = mg.App("shop").agent("desk").action(undo=mg.NOTHING, **OPTIONS)(WORKS[form])
    RAN.clear()
    assert await answer(b'{"cents":5}', of=action) == TaskMessage("done", 2, "do", 3, value=b'"paid 5"')
    assert len(RAN) == 1


@pytest.mark.parametrize("form", UNDOS)
async def test_an_undo_of_any_form_has_run_when_it_counts_as_done(form: str) -> None:
    """A coroutine that nobody awaits would count as an undo that is done."""
    action = mg.App("shop").agent("desk").action(**OPTIONS)(named)
    action.undo(UNDOS[form])
    RAN.clear()
    assert await answer(b'{"cents":5}', "undo", of=action) == TaskMessage("done", 2, "undo", 3)
    assert RAN == ["undo"]


@pytest.mark.parametrize("form", PROBES)
async def test_a_probe_of_any_form_answers(form: str) -> None:
    action = mg.App("shop").agent("desk").action(undo=mg.NOTHING, **OPTIONS)(named)
    action.probe(WORKS[form])
    assert await answer(b'{"cents":-1}', "probe", of=action) == TaskMessage("not_happened", 2, "probe", 3)


@pytest.mark.parametrize("form", REFUSED)
def test_it_is_refused_wherever_it_is_declared(form: str) -> None:
    fn, why = REFUSED[form]
    app = mg.App("shop")
    desk = app.agent("desk")
    action = desk.action(complete_within="1m")(named)
    declarations: list[Callable[[Any], Any]] = [
        desk.action(undo=mg.NOTHING, **OPTIONS), action.undo, action.probe,
    ]  # fmt: skip
    if form not in ("by position", "singledispatch"):
        declarations += [app.inbox("orders"), app.workflow(name="buy")]
    for declare in declarations:
        with pytest.raises(DefinitionError, match=why):
            declare(fn)


def named(cents: int) -> None:
    """Do nothing."""


def test_a_decorator_that_hides_the_parameters_is_refused_with_the_remedy() -> None:
    desk = mg.App("shop").agent("desk")
    action = desk.action(complete_within="1m")(named)
    for declare in (desk.action(undo=mg.NOTHING, **OPTIONS), action.undo, action.probe):
        with pytest.raises(DefinitionError, match=r"a decorator that hides them needs functools\.wraps"):
            declare(hiding(charge))


def test_a_workflow_behind_a_decorator_is_no_async_def_either() -> None:
    with pytest.raises(DefinitionError, match="a workflow function is a plain def"):
        mg.App("shop").workflow(name="buy")(plain(charge_async))


async def test_an_undo_that_returns_a_generator_did_nothing() -> None:
    action = mg.App("shop").agent("desk").action(**OPTIONS)(named)

    def yields(*, result: Any) -> Any:
        return generator(5)

    action.undo(yields)
    reply = await answer(b'{"cents":5}', "undo", of=action)
    assert reply is not None
    assert (reply.kind, reply.final) == ("gave_up", True)
    assert "returned a generator" in (reply.error or "")
