"""The JSON API: its description, who may use it, what it answers, and that acts are those of the operator."""

import asyncio
import json
import re
from base64 import b64encode
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import makegood as mg
from makegood.console import openapi
from makegood.console.api import ROOT
from makegood.console.app import create_app
from makegood.console.users import Role, User, hash_password
from tests.browser.sample import scheduled
from tests.console.asking import Browser, Got
from tests.console.consoles import migrated

shop = mg.App("shop")
desk = shop.agent("desk")


@desk.action(complete_within="20s", undo=mg.NOTHING)
def note(order: dict[str, str]) -> dict[str, str]:
    """Answer with a secret."""
    return {"order": order["id"], "token": "s3cret-token"}


@desk.action(complete_within="20s", key=mg.keys.KLARNA)
def charge(order: dict[str, str], noted: dict[str, str]) -> str:
    """Refuse one order."""
    if order["id"] == "o-2":
        raise mg.Permanent("card declined")
    return "paid"


@charge.undo
def refund(*, result: str | None) -> None:
    """Do nothing."""


@shop.workflow(complete_within="1h", on_failure="hold")
def sell(order: dict[str, str]) -> str:
    """Two steps."""
    return charge(order, note(order))


async def sold(url: str) -> list[str]:
    """Play two tasks, of which one ends in error; return their ids."""
    async with mg.Node(shop, url) as node:
        tasks = []
        for name in ("o-1", "o-2"):
            order = {"id": name, "card": "4111 1111 1111 1111"}
            tasks.append(await node.client.submit(sell, order, key=name))
        for task in tasks:
            await task.wait(timeout="1m")
        return [task.id for task in tasks]


async def sent(browser: Browser, path: str, body: Any, **headers: str) -> Got:
    """Post JSON as a page of the console would."""
    token = json.loads((await browser.get(f"{ROOT}/session")).text).get("csrf", "")
    headers = {"content-type": "application/json", "x-csrf-token": token} | headers
    return await browser.ask("POST", ROOT + path, json.dumps(body).encode(), headers)


def test_the_description_is_that_of_the_endpoints() -> None:
    """``python -m makegood.console.openapi > src/makegood/console/openapi.json`` writes it."""
    assert (Path(openapi.__file__).parent / "openapi.json").read_text() == openapi.text()


def test_the_description_names_no_schema_that_it_does_not_have_and_has_none_that_it_does_not_name() -> None:
    """A program that reads the description finds each of its schemas there."""
    named = set(re.findall(r'"#/components/schemas/(\w+)"', openapi.text()))
    assert named == openapi.document()["components"]["schemas"].keys()


async def test_a_task_is_found_by_the_key_that_its_service_shows_and_its_page_has_both_forms(
    tmp_path: Path,
) -> None:
    url = await migrated(tmp_path)
    one, _ = await sold(url)
    async with create_app(url, insecure=True) as app:
        browser = Browser(app)
        notice, step_charge = json.loads((await browser.get(f"{ROOT}/tasks/{one}")).text)["steps"]
        assert (notice["key"], notice["undo_key"]) == (notice["service_key"], None)
        assert len(step_charge["service_key"]) == len(step_charge["undo_service_key"]) == 36
        for key in (
            step_charge["service_key"].upper(),
            f'"{step_charge["undo_service_key"]}"',
            step_charge["key"],
        ):
            if key.isupper():  # the client of this test writes no escapes in a path
                response = await browser.get(f"{ROOT}/tasks/{key}")
                assert json.loads(response.text).get("id") == one, response.text
            matches = json.loads((await browser.get(f"{ROOT}/tasks?q={quote(key)}")).text)
            assert [task["id"] for task in matches["tasks"]] == [one]
            answer = await browser.get(f"/tasks?q={quote(key)}")
            assert (answer.status, answer.headers["location"].rpartition("/")[2]) == (303, one)
        page = (await browser.get(f"/tasks/{one}")).text
        assert step_charge["key"] in page
        assert step_charge["service_key"] in page


async def test_tasks_are_found_by_the_filter_language_page_by_page(tmp_path: Path) -> None:
    url = await migrated(tmp_path)
    one, two = await sold(url)
    async with create_app(url, insecure=True) as app:
        browser = Browser(app)

        async def tasks(query: str) -> dict[str, Any]:
            document: dict[str, Any] = json.loads((await browser.get(f"{ROOT}/tasks{query}")).text)
            return document

        assert [task["id"] for task in (await tasks(""))["tasks"]] == [two, one]
        first = await tasks("?limit=1")
        assert (first["tasks"][0]["id"], first["older"]) == (two, two)
        assert [task["id"] for task in (await tasks(f"?limit=1&before={two}"))["tasks"]] == [one]
        assert [task["key"] for task in (await tasks("?q=state:error"))["tasks"]] == ["o-2"]
        count = await browser.get(f"{ROOT}/tasks/count?q=workflow:sell")
        assert json.loads(count.text) == {"count": 2, "more": False}
        wrong = await browser.get(f"{ROOT}/tasks?q=stat:error")
        assert (wrong.status, wrong.headers["content-type"]) == (400, "application/problem+json")
        assert "state" in json.loads(wrong.text)["detail"]  # it names those that there are
        for query in ("?limit=0", "?limit=x", "?limit=1001", "?limit=²"):
            assert (await browser.get(f"{ROOT}/tasks{query}")).status == 400
        assert (await browser.get(f"{ROOT}/tasks?before=nothing")).status == 404


async def test_secrets_are_covered_wherever_they_are(tmp_path: Path) -> None:
    """In inputs, results of steps and of the task; what is not secret is there."""
    url = await migrated(tmp_path)
    one, _ = await sold(url)
    async with create_app(url, insecure=True) as app:
        text = (await Browser(app).get(f"{ROOT}/tasks/{one}")).text
    assert "s3cret-token" not in text
    assert "4111" not in text
    document = json.loads(text)
    assert document["inputs"] == [{"id": "o-1", "card": "•••"}]
    assert document["steps"][0]["result"] == {"order": "o-1", "token": "•••"}
    assert document["result"] == "paid"


async def test_an_operator_acts_and_the_audit_names_them(tmp_path: Path) -> None:
    """An act that is not allowed is a problem that says why; a reason that is needed is asked for."""
    url = await migrated(tmp_path)
    one, two = await sold(url)
    async with mg.Node(shop, url, roles=["scheduler"]), create_app(url, insecure=True) as app:
        browser = Browser(app)
        offers = json.loads((await browser.get(f"{ROOT}/tasks/{two}")).text)["allowed"]
        assert {each["act"] for each in offers} >= {"undo", "resubmit"}
        preview = json.loads((await browser.get(f"{ROOT}/tasks/{one}/undo-preview")).text)
        assert [each["step"] for each in preview["undo"]] == ["charge", "note"]
        response = await sent(browser, f"/tasks/{two}/undo", {"reason": "the customer called"})
        assert (response.status, json.loads(response.text)["verdict"]) == (200, "applied")
        again = await sent(browser, f"/tasks/{one}/cancel", {})
        assert (again.status, again.headers["content-type"]) == (409, "application/problem+json")
        acts = json.loads((await browser.get(f"{ROOT}/audit?task={two}")).text)["audit"]
        one = f"who={acts[0]['who']}&kind={acts[0]['kind']}&act={acts[0]['act']}"
        assert json.loads((await browser.get(f"{ROOT}/audit?{one}")).text)["audit"] == acts[:1]
        assert json.loads((await browser.get(f"{ROOT}/audit?who=nobody")).text) == {"audit": []}
        assert [(act["kind"], act["who"], act["why"]) for act in acts] == [
            ("undo", "anonymous", "the customer called")
        ]
        settlement = await sent(
            browser, f"/tasks/{two}/settle", {"step": "charge", "outcome": "done", "reason": ""}
        )
        assert settlement.status == 422
        events = json.loads((await browser.get(f"{ROOT}/tasks/{two}/history")).text)["events"]
        assert events[0]["moves"][0]["to"]


async def test_bodies_that_do_not_fit_change_nothing(tmp_path: Path) -> None:
    url = await migrated(tmp_path)
    _, two = await sold(url)
    async with create_app(url, insecure=True) as app:
        browser = Browser(app)
        path = f"/tasks/{two}/undo"
        assert (await sent(browser, path, {"raeson": "x"})).status == 422
        assert (await sent(browser, path, [])).status == 422
        response = await sent(
            browser, f"/tasks/{two}/settle", {"step": "charge", "outcome": "ok", "reason": "x"}
        )
        assert (response.status, "one of done, failed, undone" in response.text) == (422, True)
        bulk = await sent(browser, "/bulk", {"act": "cnacel", "filter": "state:error"})
        assert (bulk.status, "one of cancel, undo, resubmit, signal" in bulk.text) == (422, True)
        assert (await sent(browser, path, {}, content_type="text/plain")).status == 415
        assert (await sent(browser, path, {}, x_csrf_token="another")).status == 403
        assert (await sent(browser, path, {}, sec_fetch_site="cross-site")).status == 403
        assert (await sent(browser, "/tasks/0000000000000/undo", {})).status == 404
        assert (await sent(browser, "/tasks/%00/undo", {})).status in (400, 404)
        acts = json.loads((await browser.get(f"{ROOT}/audit")).text)["audit"]
        assert acts == []


async def test_a_bulk_act_that_is_requested_again_under_its_id_is_one_act(tmp_path: Path) -> None:
    """A program whose answer was lost repeats its request, although another number of tasks matches by now."""
    url = await migrated(tmp_path)
    _, two = await sold(url)
    async with create_app(url, insecure=True) as app:
        browser = Browser(app)
        body = {"act": "undo", "filter": two, "expected": 1, "id": "night-1", "reason": "wrong price"}
        first = await sent(browser, "/bulk", body)
        assert (first.status, json.loads(first.text)["id"]) == (200, "night-1")
        again = await sent(browser, "/bulk", body | {"expected": 2})
        assert (again.status, json.loads(again.text)) == (200, json.loads(first.text))
        another = await sent(browser, "/bulk", body | {"act": "cancel"})
        assert (another.status, "was requested before" in another.text) == (409, True)
        for name in ("a/b", "a\0b"):
            assert (await sent(browser, "/bulk", body | {"id": name})).status == 400
        assert [act["id"] for act in json.loads((await browser.get(f"{ROOT}/bulk")).text)["bulk"]] == [
            "night-1"
        ]


@pytest.mark.parametrize("role", ["viewer", "operator"])
async def test_a_program_proves_itself_with_its_password(tmp_path: Path, role: Any) -> None:
    """No cookie speaks for it, so it needs no token; its role holds, and failures are counted as a login's are."""
    url = await migrated(tmp_path)
    _, two = await sold(url)
    users = {"robot": User("robot", role, hash_password("correct horse battery"))}

    def basic(password: str) -> dict[str, str]:
        return {"authorization": "Basic " + b64encode(f"robot:{password}".encode()).decode()}

    async with mg.Node(shop, url, roles=["scheduler"]), create_app(url, users=users) as app:
        browser = Browser(app)
        assert (await browser.get(f"{ROOT}/tasks")).status == 401
        right = basic("correct horse battery")
        assert (await browser.ask("GET", f"{ROOT}/tasks", b"", right)).status == 200
        headers = right | {"content-type": "application/json"}
        response = await browser.ask("POST", f"{ROOT}/tasks/{two}/undo", b"{}", headers)
        assert response.status == (403 if role == "viewer" else 200)
        assert (await browser.ask("GET", f"{ROOT}/tasks", b"", {"authorization": "Basic !"})).status == 401
        wrong = [await browser.ask("GET", f"{ROOT}/tasks", b"", basic("wrong")) for _ in range(10)]
        assert [response.status for response in wrong[::9]] == [401, 429]
        assert browser.cookies == {}


async def test_correcting_inputs_needs_an_administrator(tmp_path: Path) -> None:
    url = await migrated(tmp_path)
    _, two = await sold(url)

    def role(user: str) -> Role:
        return "admin" if user == "bob" else "operator"

    async with (
        mg.Node(shop, url, roles=["scheduler"]),
        create_app(
            url, resolve_user=lambda request: request.headers.get("x-user"), resolve_access=role
        ) as app,
    ):
        path, body = f"/tasks/{two}/resubmit", {"step": "charge", "inputs": {"order": {"id": "o-3"}}}
        assert (await sent(Browser(app, headers={"x-user": "ann"}), path, body)).status == 403
        response = await sent(Browser(app, headers={"x-user": "bob"}), path, body)
        assert (response.status, json.loads(response.text)["verdict"]) == (200, "applied")


async def test_every_endpoint_answers_as_it_is_described(tmp_path: Path) -> None:
    """Each GET, on a store with tasks in every kind of end, has exactly the members that its schema requires."""
    url = await migrated(tmp_path)
    one, _ = await sold(url)
    document = openapi.document()
    schemas = document["components"]["schemas"]
    async with (
        mg.Node(shop, url, roles=["scheduler", "supervisor"]) as node,
        create_app(node.client, insecure=True) as app,
    ):
        await asyncio.sleep(0)
        await scheduled(node.client.store)
        for path, operations in document["paths"].items():
            if "get" not in operations or "{id}" in path:
                continue
            response = await Browser(app).get(
                path.replace("{task}", one).replace("{app}/{name}", "shop/watch")
            )
            assert response.status == 200, (path, response.text)
            name = operations["get"]["responses"]["200"]["content"]["application/json"]["schema"]["$ref"]
            held(json.loads(response.text), schemas[name.rpartition("/")[2]], schemas, path)


def held(value: Any, schema: dict[str, Any], schemas: dict[str, Any], where: str) -> None:
    """Compare members with a schema, all the way down."""
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    if isinstance(value, dict) and "required" in schema:
        assert sorted(value) == sorted(schema["required"]), where
        for name, part in value.items():
            held(part, schema["properties"][name], schemas, f"{where}.{name}")
    elif isinstance(value, list) and "items" in schema:
        for part in value:
            held(part, schema["items"], schemas, f"{where}[]")
