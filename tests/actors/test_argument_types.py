"""Values of a wrong type, at every parameter of every public method of clients, handles and queues, are refused by an error of makegood's."""

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import makegood as mg
from makegood.client.client import Client
from makegood.store.protocol import Store
from tests.actors.noop_apps import chain_app

WRONG: list[Any] = [
    None,
    3,
    "x",
    b"x",
    object(),
    True,
    [],
    {},
    -1,
    2**70,
    float("nan"),
    1.5,
    ("a", 3),
    mg.Filter,
]
RIGHT: dict[str, Any] = {
    "wanted": mg.Filter(workflow="nobody"), "alert": 1, "kind": "undo", "id": "x", "epoch": 1, "queue": "orders", "value": 1,
    "name": "orders", "step": "charge", "more": "1s", "inputs": {}, "task_id": "0000000000007", "lease": "1s",
}  # fmt: skip
"""What every other parameter gets that has no default."""
LONG = (None, 3, 1.5, True, 2**70)
"""Times that are right, and for which a call would wait."""
ENDS = ("open", "close", "store")
"""What opens and closes the client itself."""


def calls(owner: Any, workflow: Any) -> Iterator[tuple[str, Any, list[Any], dict[str, Any]]]:
    """Yield (name, method, arguments): each parameter once with each wrong value."""
    for name in (name for name in dir(type(owner)) if not name.startswith("_") and name not in ENDS):
        method = inspect.getattr_static(type(owner), name)
        if not callable(method):
            continue
        method = getattr(owner, name)
        parameters = [p for p in inspect.signature(method).parameters.values() if p.name != "connection"]
        for parameter in parameters:
            for value in WRONG:
                if parameter.name in ("timeout", "follow") and value in LONG:
                    continue
                args: list[Any] = []
                options: dict[str, Any] = (
                    {"timeout": 0.01} if "timeout" in inspect.signature(method).parameters else {}
                )
                for p in parameters:
                    argument = {**RIGHT, "workflow": workflow}.get(p.name)
                    if p is parameter:
                        argument = value
                    elif p.default is not p.empty or p.kind is p.VAR_POSITIONAL:
                        continue
                    if p.kind is p.KEYWORD_ONLY or (
                        p.default is not p.empty and p.kind is p.POSITIONAL_OR_KEYWORD
                    ):
                        options[p.name] = argument
                    else:
                        args.append(argument)
                yield f"{name}({parameter.name}={value!r})", method, args, options


async def outcome(method: Any, args: list[Any], options: dict[str, Any]) -> Exception | None:
    """Return what a call raised that is not makegood's, or a wait without end."""
    try:
        async with asyncio.timeout(60):
            result = method(*args, **options)
            if inspect.isawaitable(result):
                await result
            elif hasattr(result, "__anext__"):
                await anext(result)
    except (mg.MakegoodError, StopAsyncIteration):
        return None
    except Exception as error:
        return error
    return None


@pytest.mark.filterwarnings("ignore:nothing was submitted")
async def test_wrong_values_are_refused_by_every_method(store: Store) -> None:
    _, chain = chain_app(1)
    async with Client(store, poll_every=0.01) as client:
        task = await client.submit(chain, "a")
        queue = client.queue("orders")
        leaks = [
            (name, fault)
            for owner in (client, task, queue)
            for name, method, args, options in calls(owner, chain)
            if (fault := await outcome(method, args, options)) is not None
        ]
    assert leaks == []


@pytest.mark.parametrize(
    ("call", "pattern"),
    [
        (lambda client: client.find("state=error"), r"find\(\): wanted='state=error': pass a Filter or None"),
        (lambda client: client.count("state=error"), r"wanted='state=error': pass a Filter"),
        (lambda client: client.find(states=("error",)), r"there is no option 'states'"),
        (lambda client: client.alerts(limit=-1), "limit=-1: a whole number from 0"),
        (
            lambda client: client.bulk("drop", mg.Filter()),
            "kind='drop': pass 'cancel', 'undo', 'resubmit' or 'signal'",
        ),
        (lambda client: client.drop_messages("orders", "one"), "ids='one': pass a list or tuple or None"),
        (lambda client: client.send("orders", 1, headers="a=b"), "headers='a=b': pass a mapping or None"),
    ],
)
async def test_the_words_say_what_to_pass(call: Any, pattern: str, store: Store) -> None:
    async with Client(store) as client:
        with pytest.raises(mg.ConfigError, match=pattern):
            await call(client)


@pytest.mark.parametrize("wrong", [None, True, 1.5, b"0000000000007", object()])
async def test_what_names_no_task_is_refused_at_once(wrong: Any, store: Store) -> None:
    async with Client(store) as client:
        with pytest.raises(mg.ConfigError, match=r"task\(\): task_id=.*: pass a text or a whole number"):
            client.task(wrong)
        for nobody in ("", "  ", "x", -1, 2**63):
            with pytest.raises(mg.TaskNotFoundError):
                client.task(nobody)


def test_the_blocking_client_says_the_same(tmp_path: Any) -> None:
    wrong: Any = "state=error"
    with mg.SyncClient(f"sqlite:///{tmp_path / 'a.db'}", migrate=True) as client:
        with pytest.raises(mg.ConfigError, match="pass a Filter or None"):
            client.find(wrong)
        with pytest.raises(mg.ConfigError, match=r"task_id=None: pass a text"):
            client.task(None)  # type: ignore[arg-type]  # what is tested
        with pytest.raises(
            mg.ConfigError, match=r"submit_many\(\): there is no option 'batches' \(did you mean 'batch'"
        ):
            client.submit_many([], batches=3)  # type: ignore[call-overload]  # what is tested
