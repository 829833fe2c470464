"""Texts that a database cannot keep: what an exception says is escaped, and it is treated as any other; what a caller gives is refused."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

import makegood as mg
from makegood.node.node import Node
from makegood.store.protocol import Store
from makegood.store.views import Filter
from tests.actors.conftest import QUIET
from tests.actors.noop_apps import Service, chain_app
from tests.conformance.worlds import World
from tests.waiting import moment

FAULTS = {"a lone surrogate": "caf\udce9.pdf", "a NUL": "502: \0\x1f"}
KEPT = {"a lone surrogate": "ValueError: caf\\udce9.pdf", "a NUL": "ValueError: 502: \\x00\x1f"}
SOON = mg.Recover(threshold=1, wait="1ms", extended="1ms")
MANY = mg.Retry(tries=2, wait="1ms")


class Mute(Exception):  # noqa: N818 - what it is
    """Its text cannot be made."""

    def __str__(self) -> str:
        raise AttributeError("no response")


def shop(service: Service) -> tuple[mg.App, Any]:
    """Return an app with an action that may fail, after one that can be undone, and its workflow."""
    app = mg.App("shop")
    bank = app.agent("bank")

    @bank.action(complete_within="20s", retry=MANY, recover=SOON)
    async def charge(order: str) -> str:
        return order

    @charge.undo
    async def refund(order: str, *, result: str | None) -> None:
        service.called("refund")

    @bank.action(complete_within="20s", retry=MANY, recover=SOON, undo=mg.NOTHING)
    def convert(amount: str) -> str:
        service.called("convert")
        return amount

    @app.workflow
    def buy(order: str) -> str:
        return convert(charge(order))

    return app, buy


@pytest.mark.parametrize("what", FAULTS)
async def test_an_error_whose_text_cannot_be_kept_is_met_by_another_attempt(store: Store, what: str) -> None:
    """Two tries fail, so the step is asked again."""
    service = Service()
    service.fail = [ValueError(FAULTS[what])] * 3
    app, buy = shop(service)
    async with Node(app, store, options=QUIET) as node:
        task = await node.client.submit(buy, "o")
        assert await task.result(timeout="60s") == "o"
    assert service.names() == ["convert"] * 4
    assert not await store.alerts.views()


@pytest.mark.parametrize("what", FAULTS)
async def test_a_task_that_ends_by_such_errors_is_undone_and_says_so(store: Store, what: str) -> None:
    """The undo raises such a text as well, once: it is asked again like any undo."""
    service = Service()
    service.fail = [ValueError(FAULTS[what])] * 7
    app, buy = shop(service)
    async with Node(app, store, options=QUIET) as node:
        task = await node.client.submit(buy, "o")
        with pytest.raises(mg.TaskUndone) as error:
            await task.result(timeout="60s")
        assert KEPT[what] in error.value.cause
    assert service.names() == ["convert"] * 6 + ["refund"] * 2


async def test_an_error_whose_text_cannot_be_made_is_met_by_another_try(store: Store) -> None:
    service = Service()
    service.fail = [Mute()] * 3
    app, buy = shop(service)
    async with Node(app, store, options=QUIET) as node:
        assert await (await node.client.submit(buy, "o")).result(timeout="60s") == "o"
        service.fail = [mg.Permanent(FAULTS["a NUL"])]
        with pytest.raises(mg.TaskUndone, match=r"502: \\x00"):
            await (await node.client.submit(buy, "p")).result(timeout="60s")
        service.fail = [Mute()] * 6
        with pytest.raises(
            mg.TaskUndone, match=r"Mute .its text could not be made: AttributeError: no response"
        ):
            await (await node.client.submit(buy, "q")).result(timeout="60s")


@pytest.mark.parametrize("text", ["a\0b", "caf\udce9"])
async def test_what_an_operator_says_is_refused_at_once_if_it_cannot_be_kept_and_the_task_runs_on(
    store: Store, text: str
) -> None:
    app, service = mg.App("shop"), Service()
    bank = app.agent("bank")

    @bank.action(complete_within="20s", undo=mg.NOTHING)
    async def charge(order: str) -> str:
        await service.hang.wait()
        return order

    @app.workflow
    def buy(order: str) -> str:
        return charge(order)

    async with Node(app, store, options=QUIET) as node:
        task = await node.client.submit(buy, "o")
        options: list[dict[str, Any]] = [{"why": text}, {"who": text}]
        for option in options:
            (name,) = option
            for act in (task.cancel, task.undo, task.resubmit):
                with pytest.raises(mg.ConfigError, match=f"{name}=.*without NUL or lone surrogates"):
                    await act(**option)
            with pytest.raises(mg.ConfigError, match=f"{name}="):
                await node.client.cancel_all(Filter(), **option)
            with pytest.raises(mg.ConfigError, match=f"{name}="):
                await node.client.acknowledge(1, **option)
            with pytest.raises(mg.ConfigError, match=f"{name}="):
                await node.client.replay_messages("orders", **option)
        service.hang.set()
        assert await task.result(timeout="60s") == "o"
        assert not await node.client.audit()


@pytest.mark.parametrize("text", ["a\0b", "caf\udce9"])
async def test_keys_and_names_that_cannot_be_kept_are_refused_by_their_name(store: Store, text: str) -> None:
    """On every store alike: a program does not find out when it moves to the other one."""
    app, chain = chain_app(1)
    async with Node(app, store, options=QUIET) as node:
        options: tuple[dict[str, Any], ...] = ({"key": text}, {"correlation_id": text})
        for option in options:
            (name,) = option
            with pytest.raises(mg.PayloadError, match=f"{name}=.*nothing was written"):
                await node.client.submit(chain, "o", **option)
            many: dict[str, Any] = {name: lambda _: text}
            with pytest.raises(mg.PayloadError, match=f"{name}=.*nothing was written"):
                await node.client.submit_many(chain, ["o"], **many)
        keywords: list[dict[str, Any]] = [{"id": text}, {"kind": text}, {"correlation_id": text}]
        if "\0" not in text:  # headers are JSON, which may hold one
            keywords.append({"headers": {"a": text}})
        for wrong in keywords:
            with pytest.raises((mg.ConfigError, mg.PayloadError)):
                await node.client.send("orders", 1, **wrong)
        assert not await store.tasks.find(Filter())
    with pytest.raises(mg.ConfigError, match="name="):
        Node(app, store, name=text)


async def test_what_is_json_may_hold_a_nul(store: Store) -> None:
    """Inputs, arguments, results and messages are kept as bytes."""
    app, chain = chain_app(2)
    messages: list[object] = []
    async with Node(app, store, options=QUIET) as node:
        task = await node.client.submit(chain, "a\0b")
        assert await task.result(timeout="60s") == "a\0b"
        assert (await task.status()).inputs == (b'"a\\u0000b"',)
        await node.client.send("orders", {"a\0": "\0"}, headers={"h": "\0"})
        (message,) = await node.client.queue("orders").receive(timeout="2m")
        messages.append((message.value, dict(message.headers)))
        await node.client.queue("orders").acknowledge(message)
    assert messages == [({"a\0": "\0"}, {"h": "\0"})]


def failing(error: Callable[[], BaseException], *, waits: bool, calls: list[int]) -> mg.App:
    """Return an app whose inbox fails."""
    app = mg.App("shop")
    options: dict[str, Any] = {"retry": mg.Retry(tries=2, wait="1ms"), "lease": "1h"}

    if waits:

        @app.inbox("orders", **options)
        async def accept(order: int, tx: mg.Transaction) -> None:
            calls.append(order)
            raise error()

    else:

        @app.inbox("orders", **options)
        def accept_at_once(order: int, tx: mg.Transaction) -> None:
            calls.append(order)
            raise error()

    return app


@pytest.mark.parametrize("waits", [False, True], ids=["def", "async def"])
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (lambda: ValueError("caf\udce9"), "ValueError: caf\\udce9"),
        (lambda: ValueError("a\0b"), "ValueError: a\\x00b"),
        (Mute, "Mute (its text could not be made: AttributeError: no response)"),
        (lambda: SystemExit(3), "SystemExit: 3"),
        (asyncio.CancelledError, "CancelledError"),
    ],
    ids=["a lone surrogate", "a NUL", "no text", "sys.exit", "a cancellation"],
)
async def test_a_message_whose_function_raises_such_errors_comes_again_after_its_wait(
    store: Store,
    world: World,
    error: Callable[[], BaseException],
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    waits: bool,
) -> None:
    """Its lease is an hour: it was given back, not left to lie."""
    # pytest-xdist cannot carry captured lines that are no UTF-8, as a traceback with such a text is
    monkeypatch.setattr(logging.getLogger("makegood.inbox"), "propagate", False)
    calls: list[int] = []
    async with Node(failing(error, waits=waits, calls=calls), store, roles=("inbox",), options=QUIET) as node:
        await node.client.send("orders", 7)
        async with asyncio.timeout(60):
            while not (dead := await node.client.messages("orders", dead=True)):
                await moment()
                await world.elapse(0.05)
        assert not node.dead()
    assert calls == [7, 7]
    assert [view.message.error for view in dead] == [text]
    (alert,) = await store.alerts.views()
    assert text in alert.text


async def test_a_listener_may_give_back_a_message_with_any_text(store: Store) -> None:
    """Most often it is an exception's, and a listener that failed over it would leave the message lying."""
    async with Node(mg.App("shop"), store, roles=("scheduler",), options=QUIET) as node:
        queue = node.client.queue("orders")
        await node.client.send("orders", 1)
        for dead in (False, True):
            (message,) = await queue.receive(timeout="2m")
            assert await queue.give_back(message, error="caf\udce9 \0", dead=dead)
        (view,) = await node.client.messages("orders", dead=True)
    assert view.message.error == "caf\\udce9 \\x00"


async def test_whoever_watches_attempts_may_fail_and_they_are_answered(store: Store) -> None:
    """Whatever goes wrong around the function: silence would be found only when complete-by has passed."""
    service = Service()
    app, buy = shop(service)

    class Broken:
        """Fails instead of running the function."""

        async def answer(self, *_: object) -> None:
            raise LookupError("a watcher's defect")

    async with Node(app, store, options=QUIET) as node:
        assert node._agents is not None
        node._agents.attempts.runner = Broken()
        task = await node.client.submit(buy, "o")
        with pytest.raises(mg.TaskInError, match="LookupError: a watcher's defect"):
            await task.result(timeout="60s")
