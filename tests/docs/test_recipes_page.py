"""Each recipe's page is one module, and each does what its page says."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

import makegood as mg
from tests.docs.test_operate_howto import loaded
from tests.submission.connections import PostgresWorld, World
from tests.waiting import until

FOLDER = Path(__file__).resolve().parents[2] / "docs/build/recipes"
MODULE = re.compile(r"^```python\n# (\w+)\.py\n(.*?)^```", re.MULTILINE | re.DOTALL)
WITH_MODULES = {path.stem for path in FOLDER.glob("*.md") if MODULE.search(path.read_text(encoding="utf-8"))}


def recipe(folder: Path, page: str) -> Any:
    """Return the module of a recipe's page."""
    ((name, code),) = MODULE.findall((FOLDER / f"{page}.md").read_text(encoding="utf-8"))
    (folder / f"{name}.py").write_text(code, encoding="utf-8")
    return loaded(folder, name)


def played(app: mg.App, folder: Path, play: Callable[[mg.Client], Awaitable[None]]) -> None:
    """Play something against a node of a recipe's app."""

    async def call() -> None:
        async with mg.Node(app, f"sqlite:///{folder / 'recipes.db'}") as node:
            await play(node.client)

    asyncio.run(asyncio.wait_for(call(), 60))


SIMPLE: dict[str, tuple[str, tuple[Any, ...], Any]] = {
    "poll-a-slow-service": ("render_film", ("f",), "POST /renders/f"),
    "fan-out": ("print_book", ("b",), 3),
    "pivot-last": ("release_book", ("b",), "POST /published/b"),
    "nested-workflows": ("place_order", (["nut", "bolt"],), "bolt packed"),
    "scoped-sessions": ("report", (1,), 2),
    "first-of-several": ("ship", ("o",), "label of fast o"),
    "share-a-pool": ("report", (1,), 2),
    "rate-per-tenant": ("synchronise", ("blue", "r"), "PUT /records/r"),
}
OTHERS = {
    "ask-a-person", "wait-for-a-moment", "start-later", "run-on-a-schedule",  # tests/docs/test_workaround_recipes.py, too
    "webhook-service", "follow-up-an-email", "stripe", "carry-the-tenant", "django-orm", "sentry",
    "follow-a-batch", "a-conversation",  # tests/docs/test_conversation_recipe.py
    "one-at-a-time", "transfer-between-accounts", "refuse-a-double-click", "newest-wins", "limit-per-tenant",  # tests/docs/test_lane_recipes.py
}  # fmt: skip


def test_every_module_is_tried() -> None:
    assert {*SIMPLE, *OTHERS} == WITH_MODULES
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert {path.stem for path in FOLDER.glob("*.md")} - {"README"} == set(
        re.findall(r"\]\(([\w-]+)\.md\)", text)
    )


@pytest.mark.parametrize("page", SIMPLE)
def test_a_recipe_runs(page: str, tmp_path: Path) -> None:
    module = recipe(tmp_path, page)
    workflow, inputs, result = SIMPLE[page]

    async def play(client: mg.Client) -> None:
        task: mg.TaskHandle[Any] = await client.submit(getattr(module, workflow), *inputs)
        assert await task.result("60s") == result

    played(module.shop, tmp_path, play)


def test_a_batch_is_followed_to_its_end(tmp_path: Path) -> None:
    module = recipe(tmp_path, "follow-a-batch")

    async def play(client: mg.Client) -> None:
        progress = await module.tonight(client, "2026-11-28", ["ada", "bob", "cy"])
        assert (progress.tasks, progress.at_end, progress.text) == (3, 3, "3 processed")
        for wanted in (mg.Filter(key=mg.Prefix("2026-11-28/")), mg.Filter(correlation_id="2026-11-28")):
            assert await client.count(wanted) == 3
        assert await client.count(mg.Filter(attributes={"customer": "ada"})) == 1

    played(module.shop, tmp_path, play)


def test_a_batch_of_a_workflow_with_two_inputs_is_submitted_as_plans(tmp_path: Path) -> None:
    text = (FOLDER / "follow-a-batch.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "batch.py").write_text("\n\n".join(blocks), encoding="utf-8")
    module = loaded(tmp_path, "batch")

    async def play(client: mg.Client) -> None:
        tasks = await module.remind_all(client, "night", {"ada": 3, "bob": 4})
        assert [await task.result("60s") for task in tasks] == ["ada owes 3", "bob owes 4"]
        assert await client.count(mg.Filter(correlation_id="night", key=mg.Prefix("night/"))) == 2

    played(module.shop, tmp_path, play)


def test_a_person_is_asked(tmp_path: Path) -> None:
    """Yes, clicked twice, pays; no undoes the task."""
    module = recipe(tmp_path, "ask-a-person")

    async def play(client: mg.Client) -> None:
        for trip in ("rome", "oslo"):
            await client.submit(module.travel, trip, key=trip)
        for _ in range(2):
            await module.clicked(client, "rome", "click-1", True)
        await module.clicked(client, "oslo", "click-2", False)
        rome = await client.submit(module.travel, "rome", key="rome")
        assert await rome.result("60s") == "paid rome, approved by ann"
        assert await module.paid(client, "rome", "click-1") == "paid rome, approved by ann"
        oslo = await client.submit(module.travel, "oslo", key="oslo")
        with pytest.raises(mg.TaskUndone, match="the boss said no"):
            await oslo.result("60s")

    played(module.office, tmp_path, play)


def test_a_webhook_is_waited_for(tmp_path: Path) -> None:
    """The name that was sent with the request finds the task, also twice, and before the request is answered."""
    module = recipe(tmp_path, "webhook-service")
    names: list[str] = []
    module.http = lambda _path, _headers, name: names.append(name)

    async def play(client: mg.Client) -> None:
        task = await client.submit(module.scan, "d-1")

        async def is_requested() -> bool:
            return bool(names)

        await until(is_requested)
        for _ in range(2):
            await module.webhook(client, names[0], "delivery-1", "read")
        assert await task.result("60s") == "read"
        assert len((await task.status()).signals) == 1

    played(module.shop, tmp_path, play)


def test_a_task_begins_later(tmp_path: Path) -> None:
    """It ends as any other."""
    later = recipe(tmp_path, "start-later")

    async def delayed(client: mg.Client) -> None:
        await later.remind_later(client, "o-9", delay="100ms")
        while not (tasks := await client.find(mg.Filter(workflow="remind", key="o-9"))):
            pass
        assert await client.task(str(tasks[0].id)).result("60s") == "reminder for o-9"

    played(later.shop, tmp_path, delayed)


def test_a_mail_is_followed_by_an_apology(tmp_path: Path) -> None:
    module = recipe(tmp_path, "follow-up-an-email")
    mails: list[str] = []
    module.http = lambda _path, _headers, text: mails.append(text)

    async def play(client: mg.Client) -> None:
        await (await client.submit(module.sell, "o-1")).result("60s")
        with pytest.raises(mg.TaskUndone):
            await (await client.submit(module.sell, "o-2")).result("60s")

    played(module.shop, tmp_path, play)
    assert mails == ["o-1 is on its way", "o-2 is on its way", "sorry: o-2 was cancelled"]


def test_that_very_payment_is_refunded(tmp_path: Path) -> None:
    module = recipe(tmp_path, "stripe")
    requests: list[tuple[str, str, dict[str, Any]]] = []

    def http(method: str, path: str, headers: Any = None, **data: Any) -> dict[str, Any]:
        requests.append((method, path, data))
        return {"id": "pi_7", "state": "declined" if data.get("amount") == 13 else "succeeded"}

    module.http = http

    async def play(client: mg.Client) -> None:
        task = await client.submit(module.pay, "o-1", 500)
        assert await task.result("60s") == "pi_7"
        await task.undo(why="sent back")
        await task.wait("60s")
        assert requests[-1] == ("POST", "/v1/refunds", {"payment_intent": "pi_7"})
        with pytest.raises(mg.TaskUndone, match="card declined"):
            await (await client.submit(module.pay, "o-2", 13)).result("60s")

    played(module.shop, tmp_path, play)


def test_a_tenant_is_carried_as_an_input(tmp_path: Path) -> None:
    """Of requests at the same moment; and the action's context is its own."""
    module = recipe(tmp_path, "carry-the-tenant")

    async def play(client: mg.Client) -> None:
        async def request(tenant: str) -> Any:
            handle = await module.request(client, module.Caller(tenant, "en"), "ann")
            return await handle.result("60s")

        tenants = [f"t{n}" for n in range(6)]
        greetings = await asyncio.gather(*(asyncio.create_task(request(tenant)) for tenant in tenants))
        assert greetings == [f"{tenant} greets ann" for tenant in tenants]

    played(module.shop, tmp_path, play)


def test_a_scoped_session_is_of_one_call(tmp_path: Path) -> None:
    """The agent has one thread: without the hook it would keep one session."""
    module = recipe(tmp_path, "scoped-sessions")
    sessions: list[Any] = []  # keeps them, so that no identity is used twice

    def look(n: int) -> int:
        sessions.append(module.Session())
        return n

    action = module.desk.action(complete_within="10s", undo=mg.NOTHING)(look)

    def twice(n: int) -> Any:
        return action(action(n))

    workflow = module.shop.workflow()(twice)

    async def play(client: mg.Client) -> None:
        await (await client.submit(workflow, 1)).result("60s")

    played(module.shop, tmp_path, play)
    assert sessions[0] is not sessions[1]
    module.engine.dispose()


DJANGO = """
import asyncio, sys
import django
from django.conf import settings
settings.configure(DATABASES={"default": %s})
django.setup()
import psycopg
import makegood as mg
sys.path.insert(0, sys.argv[1])
import orm

async def main():
    async with mg.Node(orm.shop, sys.argv[2], options=mg.Options(alerts_every=None)) as node:
        for n in range(3):
            assert await (await node.client.submit(orm.total, n)).result("120s") == n + 11
            if sys.argv[3:]:  # as a restart of the database
                with psycopg.connect(sys.argv[3], autocommit=True) as admin:
                    admin.execute(
                        "select pg_terminate_backend(pid) from pg_stat_activity "
                        "where datname = current_database() and pid <> pg_backend_pid()"
                    )
    print("done")

asyncio.run(main())
"""


def test_the_orm_works_after_a_restart_of_the_database(world: World, tmp_path: Path) -> None:
    """In ``def`` actions by itself, in ``async def`` actions with the page's hook. Connections are kept, as ``CONN_MAX_AGE`` wants."""
    ((_, code),) = MODULE.findall((FOLDER / "django-orm.md").read_text(encoding="utf-8"))
    (tmp_path / "orm.py").write_text(code, encoding="utf-8")
    place: dict[str, object] = {
        "ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "django.db"), "CONN_MAX_AGE": None,
    }  # fmt: skip
    cut = []
    if isinstance(world, PostgresWorld):
        parameters = psycopg.conninfo.conninfo_to_dict(world.url)
        place |= {"ENGINE": "django.db.backends.postgresql", "NAME": parameters["dbname"]}
        place |= {
            name.upper(): parameters[name]
            for name in ("host", "port", "user", "password")
            if name in parameters
        }
        cut = [world.url]
    ran = subprocess.run(
        [sys.executable, "-c", DJANGO % place, tmp_path, world.url, *cut],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ran.stdout == "done\n", ran.stderr


def test_sentry_gets_what_failed_with_its_task(tmp_path: Path) -> None:
    """Each call's scope is its own. It needs sentry-sdk, which no other test does."""
    sdk = pytest.importorskip("sentry_sdk", reason="sentry-sdk is not installed: the recipe was not tried")
    events: list[dict[str, Any]] = []
    sdk.init(dsn="http://key@127.0.0.1:9/1", before_send=lambda event, _: events.append(event))
    module = recipe(tmp_path, "sentry")
    tasks: list[str] = []

    async def play(client: mg.Client) -> None:
        assert await (await client.submit(module.deliver, "o-1")).result("60s") == "parcel o-1"
        tasks.extend([(await client.submit(module.deliver, "broken")).id for _ in range(2)])

        async def reported() -> bool:
            return {event["tags"]["task"] for event in events} == {*tasks}

        await until(reported)

    played(module.shop, tmp_path, play)
    assert {e["tags"]["step"] for e in events} == {"ship"}
    assert {e["exception"]["values"][-1]["type"] for e in events} == {"LookupError"}
