"""Secret values: where they stand in payloads, and that no page, file, command or log shows them."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

import makegood as mg
from makegood.base.secret_names import COVER
from makegood.console.redaction import Redaction
from tests.actors.conftest import QUIET
from tests.console.consoles import USERS, a_console
from tests.doors.conftest import Shop

C = "CANARY"
SECRETS: dict[str, Any] = {
    "pwd": C, "api-key": C, "x-api-key": C, "card-number": C, "otp": C, "user_pin": C, "securityCode": C, "jwt": C, "dsn": C, "account_number": C,
    "mot_de_passe": C, "Pass Word": C, "credentials": {"a": C}, "secret": [C], "\u200bpassword": C,
    "headers": [["Authorization", C], ["Accept", "x"]], "pairs": [{"name": "authorization", "value": C}, {"Key": "password", "Value": {"deep": [C]}}],
    "nested": {"a": [{"b": {"privateKey": C}}]}, "database": f"postgresql://me:{C}@db/shop", "note": f"curl -H 'Authorization: Bearer {C}'",
    "triples": [["Authorization", C, True]], "header": ["Authorization", C], "rawHeaders": ["Accept", "x", "Cookie", C], "param": {"headerName": "X-Api-Key", "headerValue": C},
    "patch": [{"op": "replace", "path": "/card/cvc", "value": C, "from": C}], "xml": {"@name": "password", "#text": C}, "inputs": [{"type": "password", "value": C}],
    "printed": f"[('Authorization', 'Basic {C}')] {{b'cookie': b'{C}'}}", "digest": f'Authorization: Digest username="a", response="{C}"',
    "body": f'{{"password": "{C}"}}', "form": f"user=ann&password={C}&x=1",
}  # fmt: skip
SHOWN = {
    "pinned": 1, "author": "ann", "shipping": {"to": "x"}, "max_tokens": 5, "pairs": [{"name": "sku", "value": "pen"}], "rows": [["sku", "pen"]], "fields": ["password", "email"],
    "errors": [{"type": "missing", "field": "password", "why": "is needed"}], "told": "these are needed: ['password', 'email', 'name']",
    "big": 9007199254740993,
}  # fmt: skip
shop = mg.App("shop")
desk = shop.agent("desk")


def refuse() -> None:
    """Show in an error what clients of HTTP show."""
    raise ValueError(f"401 at https://me:{C}-err@api.example/x")


@desk.action(complete_within="1m", undo=mg.NOTHING, retry=mg.NEVER)
def sign_up(name: str, passphrase: str, order: dict[str, Any]) -> dict[str, Any]:
    """Open an account; the error of a bad one shows what services' errors show."""
    mg.current_call().note(f"asked (password={C}-err)")
    mg.current_call().note({"password": C, "asked": "twice"})
    if order.get("bad"):
        try:
            refuse()
        except ValueError as inner:
            raise mg.Permanent(f"login failed (password={C}-err, Authorization: Bearer {C}-err)") from inner
    return {"access_token": C, "id": "a-1"}


@shop.workflow(complete_within="1m")
def enrol(user: str, password: str, order: dict[str, Any], *secrets: str) -> Any:
    """The password of the workflow is the passphrase of its action."""
    return sign_up(user, password, order)


def test_values_are_covered_wherever_they_stand() -> None:
    """By field, in pairs, in nested objects and in texts; the rest is as it was."""
    redaction = Redaction()
    for payload in (SECRETS, [SECRETS], {"x": [SECRETS]}):
        for text in (
            redaction.text(json.dumps(payload).encode()),
            (redaction.raw(json.dumps(payload).encode()) or b"").decode(),
        ):
            assert C not in text
            assert json.loads(text)
    assert json.loads(redaction.raw(json.dumps(SHOWN).encode()) or b"") == SHOWN
    assert C in redaction.text(json.dumps(SECRETS).encode(), whole=True)
    assert redaction.text(b'"x"', "password") == f'"{COVER}"'
    assert redaction.text(b'"x"', "author") == '"x"'


def test_a_hook_sees_the_path_that_begins_with_the_parameter() -> None:
    """Of an input as of an argument."""
    paths: list[str] = []

    def hook(path: str, value: Any) -> Any:
        paths.append(path)
        return value

    Redaction(hook).raw(b'{"size":{"no":1},"lines":[{"sku":2}]}', "order")
    assert paths == ["order", "order.size", "order.size.no", "order.lines", "order.lines[].sku"]


def test_a_correction_is_covered_by_the_names_of_the_inputs() -> None:
    """A broken or strange one is not an error."""
    change = {"step": None, "was": ["ann", C, {"pwd": C}], "now": ["ann", C, {"pwd": C, "n": 1}], "names": ["user", "password", "order"], "steps": [{"step": "s", "was": {"passphrase": C}, "now": {"passphrase": C}}]}  # fmt: skip
    text = (Redaction().change(json.dumps(change).encode()) or b"").decode()
    assert C not in text
    assert json.loads(text)["now"][0] == "ann"
    for strange in (
        b"{",
        b"[]",
        b'{"names":1}',
        b'{"names":[1],"was":5,"now":null}',
        b'{"names":["pin"],"now":["1"]}',
    ):
        assert Redaction().change(strange) is not None
    assert Redaction().change(None) is None


def stored(folder: Path) -> bytes:
    """Return every byte of the store."""
    return b"".join(file.read_bytes() for file in folder.glob("console.db*") if file.is_file())


async def test_nobody_but_an_administrator_sees_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """On every page and file, and in the API, with a task that ended well and one that failed. The error's are nowhere at all."""
    caplog.set_level(logging.DEBUG)
    async with a_console(tmp_path, users=USERS) as console:
        async with mg.Node(shop, console.url, options=QUIET) as node:
            good, bad = [
                await node.client.submit(enrol, "ann", C, {**SECRETS, **SHOWN, "bad": bad}, C)
                for bad in (False, True)
            ]
            await good.result(timeout="60s")
            with pytest.raises(mg.TaskUndone):
                await bad.result(timeout="60s")
            status = await good.status()
            assert status.names == ("user", "password", "order", "secrets")
            notes = [note.value async for event in good.events(follow=False) for note in event.notes]
            assert notes[1] == {"password": C, "asked": "twice"}
        api = [
            f"/api/v1/tasks/{task.id}{end}"
            for task in (good, bad)
            for end in ("", "/history", "/undo-preview")
        ]
        pages = [f"/tasks/{task.id}" for task in (good, bad)]
        lists = ["/", "/tasks", "/alerts", "/errors", "/audit", "/audit.csv", "/audit.jsonl", "/api/v1/tasks", "/api/v1/errors", "/api/v1/alerts", "/api/v1/audit"]  # fmt: skip
        for user in ("vera", "otto", "ada"):
            browser = console.browser(user)
            for path in (*pages, *api, *lists):
                response = await browser.get(path)
                assert response.status == 200, path
                assert C not in response.text, path
        page = (await console.browser("vera").get(pages[0])).text
        assert "<h3>password</h3>" in page
        assert "twice" in page
        assert "twice" in (await console.browser("vera").get(f"/api/v1/tasks/{good.id}/history")).text
        assert "pinned" in page
        assert COVER in page
        ada = console.browser("ada")
        whole = await ada.post(f"{pages[1]}/payloads", {"csrf": console.token(ada), "reason": "a test"})
        assert C in whole.text
        assert f"{C}-err" not in whole.text
    assert C not in caplog.text
    assert f"{C}-err".encode() not in stored(tmp_path)


def test_commands_cover_them_too(tmp_path: Path) -> None:
    """Until they are asked not to; and what stands for a value is not taken for one."""
    shop_at = Shop(tmp_path)

    async def submitted() -> str:
        async with mg.Client(shop_at.url, migrate=True) as client:
            return (await client.submit(enrol, "ann", C, {**SECRETS, **SHOWN})).id

    task = asyncio.run(submitted())
    for words in (
        ("task", "show", task),
        ("task", "show", task, "--json"),
        ("task", "list", "--json"),
        ("audit", "--json"),
    ):
        result = shop_at.call(*words)
        assert result.exit_code == 0
        assert C not in result.output
    assert C in shop_at.call("task", "show", task, "--uncovered").output
    assert C in shop_at.call("task", "show", task, "--uncovered", "--json").output
    shop_at.call("task", "cancel", task, "--no-wait")
    refusal = shop_at.call("task", "resubmit", task, "--input", json.dumps(["ann", COVER, {}]))
    assert refusal.exit_code == 2
    assert "--uncovered" in refusal.output
