"""Encoded payloads for people: pages, API and commands show ciphertext as such, and values only with the codec."""

import asyncio
import logging
import random
from dataclasses import replace
from pathlib import Path

import pytest

import makegood as mg
from makegood.codecs import Encrypted
from makegood.messaging.alerts import AlertSender
from tests.actors.conftest import QUIET
from tests.actors.encoded_shop import CANARY, KEYS, EncodedShop, Line, Order, refuse_canary
from tests.console.consoles import a_console
from tests.console.test_secrets import stored
from tests.doors.conftest import Shop

SHOWN = "encrypted (key k1, "
LISTS = ("/", "/tasks", "/alerts", "/errors", "/audit", "/audit.jsonl", "/schedules", "/api/v1/tasks", "/api/v1/errors", "/api/v1/alerts", "/api/v1/audit")  # fmt: skip


async def tasks(url: str) -> list[str]:
    """Run a task that ends well, one that is undone and one that is in error; return their ids."""
    shop = EncodedShop(Encrypted(KEYS))
    async with mg.Node(shop.app, url, options=QUIET) as node:
        good = await node.client.submit(shop.place, Order("o-1"), key="o-1")
        await node.client.signal(good, shop.approval, Line("approved"))
        await node.client.signal(good, shop.verdict, "yes")
        await good.result("60s")
        shop.faults["reserve"] = mg.Permanent(CANARY)
        bad = await node.client.submit(shop.briefly, Order("o-2"))
        await bad.wait("60s")
        shop.faults |= {"release": mg.Permanent(CANARY), "names": mg.Permanent(CANARY)}
        stuck = await node.client.submit(shop.place, Order("o-3"))
        assert (await stuck.wait("60s")).state == "error"
    return [good.id, bad.id, stuck.id]


async def test_no_page_and_no_answer_of_the_api_has_a_value(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with a_console(tmp_path) as console:
        names = await tasks(console.url)
        paths = [
            *(f"/tasks/{name}" for name in names),
            *(f"/api/v1/tasks/{name}{end}" for name in names for end in ("", "/history", "/undo-preview")),
            *(f"/tasks/{name}/values/{value}" for name in names for value in ("inputs", "result", "step-0")),
        ]
        ada = console.browser("ada")
        for path in (*paths, *LISTS):
            response = await ada.get(path)
            assert response.status in (200, 404), path
            refuse_canary(response.text, path)
        assert SHOWN in (await ada.get(paths[0])).text
        whole = await ada.post(f"{paths[0]}/payloads", {"csrf": console.token(ada), "reason": "a test"})
        refuse_canary(whole.text, "uncovered payloads")
    refuse_canary(caplog.text, "a log")
    refuse_canary(stored(tmp_path).decode("latin-1"), "the store's file")


async def test_a_console_with_the_codec_shows_values_to_everybody_who_may_log_in(tmp_path: Path) -> None:
    async with a_console(tmp_path, codec=Encrypted(KEYS)) as console:
        good, *_ = await tasks(console.url)
        page = (await console.browser("vera").get(f"/tasks/{good}")).text
        assert CANARY in page
        assert f"sent {CANARY}" in (await console.browser("vera").get(f"/api/v1/tasks/{good}")).text
        for path in (f"/tasks/{good}", f"/api/v1/tasks/{good}/history"):
            assert f"reserving {CANARY}" in (await console.browser("vera").get(path)).text
    async with a_console(tmp_path, codec=Encrypted({"k2": b"2" * 32})) as console:
        page = (await console.browser("vera").get(f"/tasks/{good}")).text
        refuse_canary(page, "a page for another key")
        assert SHOWN in page


def test_commands_show_values_with_the_codec_only(tmp_path: Path) -> None:
    place = Shop(tmp_path)
    (tmp_path / "secret_codec.py").write_text(
        "import makegood as mg\n"
        f"codec = mg.codecs.Encrypted({KEYS!r})\n"
        "shop = mg.App('shop', codec=codec)\n"
        "plain = mg.App('plain')\n",
        encoding="utf-8",
    )
    assert place.call("store", "migrate").exit_code == 0
    good, _, stuck = asyncio.run(tasks(place.url))
    for words in (
        ("task", "show", good), ("task", "show", good, "--uncovered"), ("task", "show", good, "--json"), ("task", "history", stuck), ("task", "history", good), ("task", "show", stuck),
        ("task", "list", "--json"), ("alerts", "--json"), ("audit", "--json"), ("task", "undo", "--preview", good),
    ):  # fmt: skip
        result = place.call(*words)
        assert result.exit_code == 0, result.output
        refuse_canary(result.output, " ".join(words))
    assert SHOWN in place.call("task", "show", good).output
    assert SHOWN in place.call("task", "history", good).output
    for name in ("secret_codec:codec", "secret_codec:shop"):
        assert CANARY in place.call("task", "show", good, "--codec", name).output
        assert f"reserving {CANARY}" in place.call("task", "history", good, "--codec", name).output
        assert f"sent {CANARY}" in place.call("task", "show", good, "--json", "--codec", name).output
    for name, text in (("secret_codec:plain", "has no codec"), ("secret_codec:KEYS", "does not exist")):
        refusal = place.call("task", "show", good, "--codec", name)
        assert refusal.exit_code == 2
        assert text in refusal.output
    assert (
        place.call("queue", "send", "orders", f'"{CANARY}"', "--codec", "secret_codec:codec").exit_code == 0
    )
    refuse_canary(place.call("queue", "list", "orders").output, "queue list")
    assert SHOWN in place.call("queue", "list", "orders").output
    assert CANARY in place.call("queue", "receive", "orders", "--codec", "secret_codec:codec").output


async def refused_by_boss(url: str, *, state: str = "undone") -> str:
    """Run a task that ``mg.fail`` ends, which is undone or in error; return its id. Where the app's code runs, a signal may be
    named alone.
    """
    shop = EncodedShop(Encrypted(KEYS))
    holding = shop.app.workflow(on_failure="hold", name="held")(shop.place.fn)
    async with mg.Node(shop.app, url, options=QUIET) as node:
        workflow = shop.place if state == "undone" else holding
        task = await node.client.submit(workflow, Order("o-1"), key="o-1")
        with pytest.raises(mg.PayloadError, match="the value of signal approval"):
            await node.client.signal(task, "approval", "approved")
        await node.client.signal(task, "approval", {"sku": "approved"})
        await node.client.signal(task, "verdict", "no")  # it is readable
        assert (await task.wait("60s")).state == state
    return task.id


async def test_a_reason_that_is_in_an_alert_is_shown_as_encrypted_wherever_alerts_go(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_console(tmp_path) as console:
        name = await refused_by_boss(console.url, state="error")
        ada = console.browser("ada")
        for path in (*LISTS, f"/tasks/{name}", f"/api/v1/tasks/{name}", f"/api/v1/tasks/{name}/history"):
            assert "mg1:" not in (await ada.get(path)).text, path
        for path in ("/alerts", "/api/v1/alerts", "/api/v1/tasks"):
            assert SHOWN in (await ada.get(path)).text, path
        async with mg.Client(console.url) as stranger:
            assert SHOWN in (await stranger.alerts())[0].text
            caplog.clear()
            await AlertSender(stranger.store, None, pause=1.0, rng=random.Random(1)).once()
            with pytest.raises(mg.TaskInError) as failure:
                await stranger.task(name).result()
        assert f"held for an operator: {SHOWN}" in caplog.text
        assert SHOWN in str(failure.value)
        assert "mg1:" not in f"{caplog.text} {failure.value}"


REASON = f"the boss says no to {CANARY}"
ARGUMENT = f"{CANARY} {CANARY}"
"""What the step ``weigh`` is called with beside a line: the note of what ``pick`` returned."""


async def test_the_reason_of_a_fail_and_arguments_are_legible_in_a_console_with_the_codec_only(
    tmp_path: Path,
) -> None:
    async with a_console(tmp_path) as console:
        name = await refused_by_boss(console.url)
        ada = console.browser("ada")
        for path in (*LISTS, *(f"{front}/tasks/{name}" for front in ("", "/api/v1"))):
            text = (await ada.get(path)).text
            refuse_canary(text, path)
            assert "mg1:" not in text, path
        assert SHOWN in (await ada.get(f"/tasks/{name}")).text
    refuse_canary(stored(tmp_path).decode("latin-1"), "the store's file")
    async with a_console(tmp_path, codec=Encrypted(KEYS)) as console:
        vera = console.browser("vera")
        for path in (f"/tasks/{name}", f"/api/v1/tasks/{name}"):
            text = (await vera.get(path)).text
            assert REASON in text, path
            assert ARGUMENT in text, path


def test_the_reason_of_a_fail_and_arguments_are_legible_to_commands_with_the_codec_only(
    tmp_path: Path,
) -> None:
    place = Shop(tmp_path)
    (tmp_path / "secret_codec.py").write_text(
        f"import makegood as mg\ncodec = mg.codecs.Encrypted({KEYS!r})\n", encoding="utf-8"
    )
    assert place.call("store", "migrate").exit_code == 0
    name = asyncio.run(refused_by_boss(place.url))
    commands: tuple[tuple[str, ...], ...] = (
        ("task", "show", name),
        ("task", "history", name),
        ("task", "list"),
    )
    for words in commands:
        text = place.done(*words)
        refuse_canary(text, " ".join(words))
        assert "mg1:" not in text, words
        assert SHOWN in text, words
    for words in (*commands[:2], ("task", "show", name, "--json")):
        assert REASON in place.done(*words, "--codec", "secret_codec:codec"), words
    assert ARGUMENT in place.done("task", "show", name, "--json", "--codec", "secret_codec:codec")


@pytest.mark.parametrize("state", ["undone", "error"])
def test_no_command_shows_the_bytes_of_an_encoded_reason(tmp_path: Path, state: str) -> None:
    place = Shop(tmp_path)
    assert place.call("store", "migrate").exit_code == 0
    name = asyncio.run(refused_by_boss(place.url, state=state))
    commands = ["task show", "task history", "task watch"]
    for words in (*(f"{each} {name}" for each in commands), "task list", *["alerts"][: state == "error"]):
        for form in ((), ("--json",)):
            outcome = place.call(*words.split(), *form)
            text = outcome.output + outcome.stderr
            assert "mg1:" not in text, words
            assert SHOWN in text, words


VALUE = {"sku": "approved", "note": CANARY}
NO_CODEC = "takes encoded values of the signal 'approval' only, and this process has no codec of app 'shop'"


async def test_a_signal_that_is_named_alone_is_encoded_by_whoever_has_the_codec(tmp_path: Path) -> None:
    """Once for each id, by id, by key, and to many, now or by a Supervisor; a readable one stays plain, and without the codec
    nothing is sent.
    """
    shop, url = EncodedShop(Encrypted(KEYS)), f"sqlite:///{tmp_path}/shop.db"
    async with mg.Node(shop.app, url, options=replace(QUIET, migrate=True)) as node:
        tasks = [await node.client.submit(shop.ask, Order(f"o-{n}"), key=f"o-{n}") for n in range(4)]
        async with mg.Client(url) as stranger:
            with pytest.raises(mg.SignalRefused, match=f"{NO_CODEC}.*--check MODULE:APP.*--codec") as refusal:
                await stranger.signal(tasks[0].id, "approval", VALUE, id="s")
            assert refusal.value.takes_encoded
            (answer,) = await stranger.signal_all(mg.Filter(key="o-0"), "approval", VALUE)
            assert (answer.verdict, NO_CODEC in answer.outcome) == ("refused", True)
        async with mg.Client(url, codec=Encrypted(KEYS)) as desk:
            answer = await desk.signal(tasks[0].id, "approval", VALUE, id="s", until="weigh", timeout="60s")
            assert answer == f"approved: {CANARY}"
            again = await desk.signal(tasks[0].id, "approval", VALUE, id="s")
            other = await desk.signal(tasks[0].id, "approval", {"sku": "no"}, id="s")
            assert (again.created, again.conflict, other.conflict) == (False, False, True)
            assert (await desk.signal(shop.ask, "approval", VALUE, key="o-1")).created
            (outcome,) = await desk.signal_all(mg.Filter(key="o-2"), "approval", VALUE)
            assert outcome.verdict == "applied"
            bulk = await desk.bulk("signal", mg.Filter(key="o-3"), signal="approval", value=VALUE)
            assert [await task.result("60s") for task in tasks] == [f"approved: {CANARY}"] * 4
            assert (await desk.bulk_act(bulk.id)).signal == "approval"
            place = await node.client.submit(shop.place, Order("o-9"))
            assert (await desk.signal(place.id, "verdict", "yes")).created
    refuse_canary(stored(tmp_path).decode("latin-1"), "the store's file")


async def test_a_signal_to_many_that_is_only_named_is_the_same_one_when_nothing_matches_any_more(
    tmp_path: Path,
) -> None:
    """Its value was encoded for an app that no task names now; and a new one would be kept in plain."""
    shop, url = EncodedShop(Encrypted(KEYS)), f"sqlite:///{tmp_path}/shop.db"
    wanted = mg.Filter(key="o-1", states=("processing", "pending", "sleeping"))
    async with mg.Node(shop.app, url, options=replace(QUIET, migrate=True)) as node:
        task = await node.client.submit(shop.ask, Order("o-1"), key="o-1")
        async with mg.Client(url, codec=Encrypted(KEYS)) as desk, mg.Client(url) as stranger:
            first = await desk.bulk("signal", wanted, signal="approval", value=VALUE, id="b-1")
            assert first.counted == 1
            await task.result("60s")
            for client in (desk, node.client):
                again = await client.bulk("signal", wanted, signal="approval", value=VALUE, id="b-1")
                assert again.id == first.id
                with pytest.raises(mg.ActRefusedError, match="another command, filter, value"):
                    await client.bulk("signal", wanted, signal="approval", value={"sku": "no"}, id="b-1")
                with pytest.raises(mg.ConfigError, match="no task matches, so nothing shows"):
                    await client.bulk("signal", wanted, signal="approval", value=VALUE)
            with pytest.raises(mg.SignalRefused, match=r"codec of app 'shop'.*mg\.Client"):
                await stranger.bulk("signal", wanted, signal="approval", value=VALUE, id="b-1")
    refuse_canary(stored(tmp_path).decode("latin-1"), "the store's file")


async def test_the_form_of_a_console_encodes_a_signal_with_the_codec(tmp_path: Path) -> None:
    """One of JSON, as nobody knows the type; without the codec it is refused with the remedy."""
    fields = {"signal": "approval", "value-0": '{"sku": "approved", "note": "' + CANARY + '"}'}
    shop = EncodedShop(Encrypted(KEYS))
    async with a_console(tmp_path) as console:
        async with mg.Client(console.url) as client:
            task = await client.submit(shop.ask, Order("o-1"))
        otto = console.browser("otto")
        form = {"csrf": console.token(otto), **fields}
        response = await otto.post(f"/tasks/{task.id}/signal", form, hx_request="true")
        assert response.status == 409
        assert "has no codec of app &#39;shop&#39;" in response.text
        refuse_canary(response.text, "a refusal")
    async with a_console(tmp_path, codec=Encrypted(KEYS)) as console:
        otto = console.browser("otto")
        assert '<textarea class="input mono" name="value-0"' in (await otto.get(f"/tasks/{task.id}")).text
        response = await otto.post(f"/tasks/{task.id}/signal", {"csrf": console.token(otto), **fields})
        assert response.status == 303
        async with mg.Node(shop.app, console.url, options=QUIET) as node:
            assert await node.client.task(task.id).result("60s") == f"approved: {CANARY}"
    refuse_canary(stored(tmp_path).decode("latin-1"), "the store's file")
