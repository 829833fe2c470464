"""Brokers in the console: what waits at each source and for each receiver, on the page and for programs."""

import json
from pathlib import Path

from makegood.base.durations import short_duration
from makegood.console.api import ROOT
from makegood.console.pages.brokers import verdict
from makegood.store.records import Submission
from makegood.store.views import SenderInfo, SourceInfo
from makegood.story.brokers import BrokersView, ReceiverView, SourceView
from tests.conformance.builders import draft, info
from tests.console.consoles import a_console

SOURCE = SourceInfo(
    "amqp:main/<orders>", "amqp-main-orders", waiting=7, oldest=61.0, taken=5, refused=1, redelivered=2
)


async def test_the_page_and_the_api_show_sources_and_receivers(tmp_path: Path) -> None:
    async with a_console(tmp_path) as console:
        store, vera = console.app.client.store, console.browser("vera")
        away = SourceInfo(SOURCE.address, SOURCE.queue, taken=3, away=40.0, error="it does not answer")
        await store.nodes.register(
            info(
                "a-1", ("inbox",), 3600.0, sources=(SOURCE,), senders=(SenderInfo("amqp:main", 4, 1, "away"),)
            )
        )
        await store.nodes.register(info("a-2", ("inbox",), 3600.0, sources=(away,)))
        submission: Submission = draft(1, reply_to="amqp:main/notices")
        await store.tasks.submit([submission])
        page = (await vera.get("/brokers")).text
        assert "amqp:main/&lt;orders&gt;" in page
        assert "Notices to amqp:main wait: the last try failed" in page
        assert await store.admin.broken_rows(10) == []
        answer = await vera.get(ROOT + "/brokers")
        assert json.loads(answer.text) == {
            "sources": [
                {
                    "address": SOURCE.address, "queue": SOURCE.queue, "readers": ["a-1", "a-2"], "waiting": 7, "oldest": 61.0, "taken": 8,
                    "refused": 1, "redelivered": 2, "away": None, "error": "it does not answer",
                }
            ],
            "receivers": [
                {
                    "broker": "amqp:main", "waiting": 1, "oldest": json.loads(answer.text)["receivers"][0]["oldest"], "dead": 0, "sent": 4,
                    "failed": 1, "away": None, "error": "away",
                }
            ],
        }  # fmt: skip


async def test_an_empty_page_says_how_a_broker_comes_to_it(tmp_path: Path) -> None:
    async with a_console(tmp_path) as console:
        page = (await console.browser("vera").get("/brokers")).text
        assert "No order comes from a broker, and no notice goes to one" in page
        assert "@app.inbox(&#34;amqp:main/orders&#34;)" in page


def test_the_verdict_names_what_needs_somebody() -> None:
    source = SourceView("amqp:main/orders", "q", ("a",), 3, None, 1, 0, 0, None, "")
    receiver = ReceiverView("amqp:main", 0, None, 0, 0, 0, None, "")
    assert verdict(BrokersView((source,), ())).more == "3 messages waiting at the brokers."
    away = SourceView("amqp:main/orders", "q", ("a",), 3, None, 1, 0, 0, 9.0, "gone")
    assert verdict(BrokersView((away,), (receiver,))).title == "1 source away: amqp:main/orders"
    dead = ReceiverView("amqp:main", 0, None, 2, 0, 0, None, "gone")
    assert "2 tasks" in verdict(BrokersView((), (dead,))).title
    silent = ReceiverView("amqp:main", 5, None, 0, 0, 3, 40.0, "gone")
    assert verdict(BrokersView((), (dead, silent))).title == "1 receiver away: amqp:main"


async def test_a_receiver_is_away_if_the_process_that_tried_it_last_says_so(tmp_path: Path) -> None:
    """And not as long as one that has heard it since does not."""
    async with a_console(tmp_path) as console:
        store, vera = console.app.client.store, console.browser("vera")
        away = SenderInfo("amqp:main", 0, 3, "it does not answer", away=90.0, last_try=7.0)
        await store.nodes.register(info("a-1", ("scheduler",), 3600.0, senders=(away,)))
        fine = SenderInfo("amqp:main", 9, 0, last_try=100.0)
        await store.nodes.register(info("a-2", ("scheduler",), 3600.0, senders=(fine,)))
        page = (await vera.get("/brokers")).text
        assert "1 receiver away: amqp:main" in page
        assert f"away for {short_duration(90.0)}" in page
        (receiver,) = json.loads((await vera.get(ROOT + "/brokers")).text)["receivers"]
        assert (receiver["away"], receiver["error"], receiver["sent"]) == (90.0, "it does not answer", 9)
        later = SenderInfo("amqp:main", 10, 0, last_try=1.0)
        await store.nodes.register(info("a-3", ("scheduler",), 3600.0, senders=(later,)))
        (receiver,) = json.loads((await vera.get(ROOT + "/brokers")).text)["receivers"]
        assert receiver["away"] is None
