"""The command line knows no store: the same verbs say the same on PostgreSQL."""

import asyncio
from urllib.parse import urlsplit

import pytest

from tests.doors.conftest import Shop

asyncpg = pytest.importorskip("asyncpg", reason="postgres: asyncpg is not installed")


def test_every_verb_works_on_postgres(shop_on_postgres: Shop) -> None:
    """Set up, serve, submit, watch, look, undo, settle: from an empty database to a sound one."""
    shop = shop_on_postgres
    assert shop.call("scheduler").exit_code == 9
    missing = shop.json("store", "status", code=9)["missing"]
    assert shop.done("store", "migrate", "--plan").split() == missing
    assert "create table makegood.task" in shop.done("store", "migrate", "--sql").lower()
    shop.serve("run", "kiosk:kiosk")
    assert shop.json("store", "status")["missing"] == []

    task = shop.json("task", "submit", "kiosk:buy", '{"id": "p"}', "--wait")
    assert (task["state"], task["result"]) == ("processed", "paid-100-for-hold-p")
    assert shop.call("task", "watch", task["id"]).exit_code == 0
    (preview,) = shop.json("task", "undo", "--preview", task["id"])
    assert [step["name"] for step in preview["steps"]] == ["print_receipt", "charge", "reserve"]
    (undo,) = shop.json("task", "undo", task["id"], "--wait")
    assert undo["state"] == "undone"
    moves = [move for event in shop.json("task", "history", task["id"]) for move in event["moves"]]
    reason = {"reason": "reverted", "why": "nothing left to undo"}
    assert moves[-1] == {"step": None, "from": "undoing", "to": "undone", **reason}

    task_id = shop.json("task", "submit", "kiosk:buy", '{"id": "s", "card": "stuck"}', "--wait", code=6)["id"]
    assert [alert["kind"] for alert in shop.json("alerts", "--task", task_id)] == ["undo_incomplete"]
    shop.done("task", "settle", task_id, "--step", "reserve", "--undone", "--reason", "by hand")
    assert shop.json("task", "show", task_id)["state"] == "undone"
    assert shop.call("task", "cancel", task["id"], task_id, "0000000000000").exit_code == 4

    (node,) = shop.json("agents")["nodes"]
    assert {agent["agent"] for agent in node["agents"]} == {"kiosk/stock", "kiosk/till"}
    assert shop.json("leader")["holder"] == node["name"]
    assert shop.json("check", "kiosk:kiosk")["stranded"] == []
    assert shop.done("store", "check") == "nothing found: the store is intact\n"


def test_a_password_is_never_shown(shop_on_postgres: Shop) -> None:
    """Not in what is told of the store, and not in the error of a server that refuses us."""
    url = "postgresql://nobody:se-cret@127.0.0.1:1/none"
    for words in (("store", "status"), ("task", "list"), ("run", "kiosk:kiosk")):
        result = shop_on_postgres.call(*words, "--store", url)
        assert result.exit_code == 8
        assert "se-cret" not in result.output


def test_a_password_in_the_query_is_never_shown(shop_on_postgres: Shop) -> None:
    """Nor by what runs well: what roles say when they start, the doctor, the commands that are offered."""
    shop = shop_on_postgres
    plain, query = shop.url.partition("?")[::2]
    shop.url = f"{plain}?{query}{'&' if query else ''}password=CANARYbird"
    outputs = [shop.done("store", "migrate")]
    for more in ((), ("--log-format", "json")):
        serving = shop.start("run", "kiosk:kiosk", *more)
        assert serving.stderr is not None
        line = serving.stderr.readline()
        assert "password=•••" in line
        outputs += [line, *shop.stop(serving)[1:]]
    serving = shop.serve("run", "kiosk:kiosk")
    task_id = shop.json("task", "submit", "kiosk:buy", '{"id": "s", "card": "stuck"}', "--wait", code=6)["id"]
    outputs += [shop.call(*words).output for words in (
        ("doctor",), ("doctor", "--json"), ("store", "status"), ("store", "status", "--json"), ("store", "check", "--json"),
        ("task", "show", task_id, "--store", shop.url), ("task", "show", task_id, "--json", "--store", shop.url),
    )]  # fmt: skip
    assert "password=•••" in outputs[-2]
    outputs += shop.stop(serving)[1:]
    assert "CANARY" not in "".join(outputs)


def test_a_newer_store_is_not_called_up_to_date_on_postgres(shop_on_postgres: Shop) -> None:
    """Exit 9 for all that looks at the schema, older or newer; --plan and --sql said that there is nothing to apply."""
    shop = shop_on_postgres
    shop.done("store", "migrate")
    assert shop.json("store", "status")["missing"] == []

    async def become_newer() -> None:
        connection = await asyncpg.connect(shop.url)
        await connection.execute("insert into makegood.schema_version values (99, '0099_future', 0)")
        await connection.close()

    asyncio.run(become_newer())
    for words in ((), ("--plan",), ("--sql",)):
        result = shop.call("store", "migrate", *words)
        assert (result.exit_code, result.stdout) == (9, ""), words
        assert "install the newer makegood" in result.stderr
    assert shop.call("store", "status").exit_code == 9


def test_a_database_that_is_not_there_is_told_with_what_to_do(shop_on_postgres: Shop) -> None:
    """By the store, the doctor, an outbox and an election alike: the server with its port, and how to make the database."""
    shop = shop_on_postgres
    shop.done("store", "migrate")
    absent = f"{shop.url}_absent"
    for words in (
        ("task", "list", "--store", absent),
        ("doctor", "--store", absent),
        ("inbox", "--from", absent),
        ("election", "run", "e", "--wait", "1s", "--store", absent, "--", "true"),
        ("leader", "e", "--store", absent),
    ):
        result = shop.call(*words)
        assert result.exit_code == 2, (words, result.output)
        assert "has no such database: create it (`createdb`), or correct the URL" in result.output, words
        assert f":{urlsplit(absent).port or 5432}, database" in result.output
        assert "see what it says" not in result.output
