"""Receivers of notices that are down: operators hear of them, and what waits goes at once, in order, when they are back."""

import logging
import random
from collections.abc import Sequence
from typing import Any

import pytest

from makegood.base.ids import show
from makegood.brokers import Sender, Target, check, open_sender
from makegood.errors import ConfigError, DeliveryError
from makegood.messaging.broker_poster import BrokerPoster
from makegood.messaging.hosts import Hosts
from makegood.messaging.notifier import ABANDONED, PER_HOST, Notifier, Patience
from makegood.messaging.poster import NoPoster
from makegood.messaging.receivers import PROBE
from makegood.messaging.source_report import AWAY
from makegood.model.messages import Act, Alert
from makegood.store.notice_records import Due, Waiting
from makegood.store.protocol import Store
from proofs.memory_broker import MemoryBroker
from tests.actors.test_supervisor import CALM, supervisor, term_of
from tests.clocks import HandClock
from tests.conformance.builders import draft, scheduler
from tests.conformance.test_notices import processed, told
from tests.conformance.worlds import World, eventually

PLACE = "amqp:main/notices"
SLOW = Patience(tries=12, wait=3600.0, longest=21_600.0)
"""Nobody waits for the next try."""


class Sends:
    """A notifier that a test turns, with a clock of its own. ``broker``: in memory, or one that runs.
    ``places``: those on its list; none: all of the broker.
    """

    def __init__(
        self,
        store: Store,
        node: int,
        broker: MemoryBroker | Target,
        *,
        patience: Patience = SLOW,
        poster: Any = None,
        places: Sequence[str] = (),
    ) -> None:
        self.clock = HandClock()
        target = broker if isinstance(broker, Target) else Target("amqp", "main", "amqp://127.0.0.1:9")
        hosts = Hosts(["shop.example", "*.wide.example"], places or [f"{target.where}/*"])
        brokers = BrokerPoster(
            {target.name: target}, hosts, NoPoster(), cause="name", timeout=5.0,
            opener=open_sender if isinstance(broker, Target) else lambda _: broker.sender(),
            checker=check if isinstance(broker, Target) else broker.checked,
        )  # fmt: skip
        self.notifier = Notifier(
            store, poster or brokers, hosts, clock=self.clock, rng=random.Random(1), patience=patience, poll=None
        )  # fmt: skip
        self.notifier.rename(node)
        self.receivers = self.notifier.delivery.receivers

    async def turn(self) -> None:
        """Let it take what is due, send it, ask who is away, and note the outcomes."""
        await self.notifier.turn()
        await eventually(
            lambda: not self.notifier.posts and not self.receivers.probes, "the end of what is under way"
        )
        await self.notifier.turn()

    async def turns(self, least: int = 3) -> int:
        """Turn until nothing more comes of it; returns how often."""
        count = 0
        while least > 0:
            before = self.receivers.infos()
            await self.turn()
            count += 1
            least = 3 if [(i.sent, i.failed) for i in before] != [
                (i.sent, i.failed) for i in self.receivers.infos()
            ] else least - 1  # fmt: skip
        return count

    async def pass_by(self, world: World, seconds: float) -> None:
        """Let time pass."""
        self.clock.forward(seconds)
        await world.elapse(seconds)


async def submit(store: Store, tasks: Sequence[int], to: str = PLACE) -> None:
    """Submit tasks that tell a receiver."""
    await store.tasks.submit([draft(n, reply_to=to) for n in tasks])


async def texts(store: Store) -> dict[str, str]:
    """Return the texts of the open alerts about receivers, by receiver."""
    views = await store.alerts.views(100, ended=False)
    return {view.step: view.text for view in views if view.kind == "receiver_away"}


async def test_a_broker_that_does_not_answer_raises_one_alert_that_ends_when_it_is_back(
    store: Store, world: World
) -> None:
    broker = MemoryBroker(away=True)
    sends = Sends(store, await scheduler(store), broker)
    await submit(store, [1, 2])
    await sends.turns()
    assert await texts(store) == {}, "a restart of the broker wakes nobody"
    for _ in range(3):
        await sends.pass_by(world, 1.2 * PROBE)
        await sends.turns()
    assert list(await texts(store)) == ["amqp:main"]
    assert "the broker does not answer" in (await texts(store))["amqp:main"]
    (info,) = sends.receivers.infos()
    assert (info.broker, info.sent, info.away is not None and info.away >= AWAY) == ("amqp:main", 0, True)
    assert "does not answer" in info.error
    assert len(await store.alerts.views(100)) == 1
    broker.away = False
    await sends.pass_by(world, 1.2 * PROBE)
    await sends.turns()
    assert len(broker.events["notices"]) == 2
    assert await texts(store) == {}
    (info,) = sends.receivers.infos()
    assert (info.sent, info.away, info.error) == (2, None, "")


async def test_a_broker_that_refuses_this_process_raises_it_at_once(store: Store) -> None:
    broker = MemoryBroker(refuses_us=True)
    sends = Sends(store, await scheduler(store), broker)
    await submit(store, [1])
    await sends.turns()
    assert "refuses the password" in (await texts(store))["amqp:main"]


async def test_notices_wait_if_the_settings_of_this_process_cannot_be_used_any_more(store: Store) -> None:
    """A file may vanish. Other processes have theirs, and the notice is not given up."""
    sends = Sends(store, await scheduler(store), MemoryBroker())
    poster = sends.notifier.delivery.poster
    assert isinstance(poster, BrokerPoster)

    def refuse(_: Target) -> Sender:
        raise ConfigError("creds names a file that cannot be read: correct the path")

    await poster.close()
    poster.opener = refuse
    await submit(store, [1])
    await sends.turns()
    assert [view.dead for view in await store.notices.listeners()] == [False]
    assert "creds names a file" in (await texts(store))["amqp:main"]


async def test_a_place_that_only_another_process_lists_waits_for_that_process_a_while(
    store: Store, other: Store, world: World
) -> None:
    """As after a place was added to the settings, until the last process has them."""
    broker = MemoryBroker()
    before = Sends(store, await scheduler(store), broker, places=["amqp:main/former"], patience=Patience())
    after = Sends(other, await scheduler(other), broker, patience=Patience())
    await submit(store, [1])
    await before.turns()
    (listener,) = await store.notices.listeners()
    assert (listener.dead, "reply_to_brokers" in listener.error) == (False, True)
    await after.pass_by(world, 1.25 * Patience().wait)
    await after.turns()
    assert len(broker.events["notices"]) == 1

    await submit(store, [2])
    waits = 0.0
    while not [view for view in await store.notices.listeners() if view.dead]:
        seconds = min([each.seconds for each in await store.notices.notices_due()])
        waits += max(seconds, 0.0)
        await before.pass_by(world, max(seconds, 0.0))
        await before.turns()
    assert waits > ABANDONED, "no process lists it"
    assert [alert.kind for alert in await store.alerts.views()] == ["dead_letter"]


async def test_what_surely_was_not_sent_is_not_said_to_be_in_doubt(store: Store, world: World) -> None:
    broker = MemoryBroker(away=True)
    sends = Sends(store, await scheduler(store), broker)
    await submit(store, [1])
    await sends.turns()
    (listener,) = await store.notices.listeners()
    assert "may have arrived" not in listener.error
    broker.away, broker.unconfirmed = False, 1.0
    await sends.pass_by(world, 1.25 * SLOW.wait)
    await sends.turns()
    (listener,) = await store.notices.listeners()
    assert listener.error.endswith("; it may have arrived")


async def test_when_it_is_back_what_waits_goes_at_once_in_order_and_at_a_growing_rate(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One, two, four and then 8 notices at a time."""
    broker = MemoryBroker(away=True)
    hand = await told(store, *range(1, 101), to=PLACE)
    sends = Sends(store, hand.node, broker)
    for task in range(1, 101):
        await processed(hand, task)
    await sends.turns()
    assert {view.tries for view in await store.notices.listeners(200)} == {1}
    broker.away = False
    counts: list[int] = []
    take_early = store.notices.take_early_notices

    async def counted(node: int, waiting: Waiting, lease: float) -> list[Due]:
        notices = await take_early(node, waiting, lease)
        counts.append(len(notices))
        return notices

    monkeypatch.setattr(store.notices, "take_early_notices", counted)
    await sends.pass_by(world, 1.2 * PROBE)
    await sends.turns()
    assert await store.notices.listeners() == []
    assert counts[:4] == [1, 2, 4, PER_HOST]
    assert (sum(counts), max(counts)) == (100, PER_HOST)
    by_task: dict[str, list[str]] = {}
    for event in broker.events["notices"]:
        by_task.setdefault(event.task, []).append(event.id.rpartition("-")[2])
    assert len(by_task) == 100
    assert all(numbers == ["1", "2", "3"] for numbers in by_task.values())


async def test_a_broker_that_takes_few_uses_up_nobodys_tries(store: Store, world: World) -> None:
    """Its queue is full, and whoever reads it takes one message at a time."""
    broker = MemoryBroker(room=0)
    sends = Sends(store, await scheduler(store), broker)
    await submit(store, range(1, 31))
    await sends.turns()
    for n in range(5):
        broker.room = 1
        await sends.pass_by(world, 1.2 * PROBE * 2**n)  # it answers, and takes nothing: it is asked ever less
        await sends.turns()
    listeners = await store.notices.listeners()
    assert len(listeners) == 25
    assert {view.tries for view in listeners} == {1}
    assert not any(view.dead for view in listeners)


async def test_a_full_place_of_a_broker_that_takes_others_waits_out_its_growing_waits(
    store: Store, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Each notice that the broker took for another place had a notice to the full one tried: it lost its twelve tries in seconds."""
    broker = MemoryBroker(full={"full"})
    sends = Sends(store, await scheduler(store), broker, patience=Patience())
    await submit(store, range(1, 5), "amqp:main/full")
    with caplog.at_level(logging.INFO, "makegood.notifier"):
        for task in range(10, 50):
            await submit(store, [task])
            await sends.turns()
            await sends.pass_by(world, 1.0)
    assert len(broker.events["notices"]) == 40
    assert [(view.tries, view.dead) for view in await store.notices.listeners()] == [(3, False)] * 4
    assert list(await texts(store)) == ["amqp:main/full"]
    (info,) = sends.receivers.infos()
    assert (info.broker, info.away) == ("amqp:main", None)
    lines = [record.getMessage().partition(" notices")[0] for record in caplog.records]
    assert lines == ["amqp:main takes no", "amqp:main takes", "amqp:main/full takes no"]
    broker.full.clear()
    await sends.pass_by(world, 2.5 * PROBE)
    await sends.turns()
    assert len(broker.events["full"]) == 4, "although the next try of each is a minute off"
    assert await texts(store) == {}


async def test_full_places_keep_nothing_back_for_other_places_of_a_broker_that_is_back(
    store: Store, world: World
) -> None:
    """Their notices are the next ones, and would be tried in place of what can be sent."""
    broker = MemoryBroker(full={"full"})
    sends = Sends(store, await scheduler(store), broker)
    await submit(store, range(1, 10), "amqp:main/full")
    await sends.turns()
    broker.away = True
    await sends.pass_by(world, 10.0)
    await submit(store, range(10, 20))
    await sends.turns()
    broker.away = False
    await sends.pass_by(world, 1.2 * PROBE)
    await submit(store, [20], "amqp:main/others")
    await sends.turns(9)
    assert len(broker.events["notices"]) == 10


async def test_a_process_that_starts_asks_the_broker_for_which_notices_wait(
    store: Store, world: World
) -> None:
    """Those that the one before it left, whose pauses may last for hours. It also ends its alert."""
    broker = MemoryBroker(refuses_us=True)
    node = await scheduler(store)
    await submit(store, range(1, 6))
    await Sends(store, node, broker).turns()
    assert list(await texts(store)) == ["amqp:main"]
    broker.refuses_us = False
    sends = Sends(store, node, broker)
    await sends.turns()
    assert len(broker.events["notices"]) == 5
    assert (broker.checks, await texts(store)) == (1, {})
    await sends.pass_by(world, 100 * PROBE)
    await sends.turns()
    assert broker.checks == 1, "a broker that answers is not asked"


async def test_a_place_that_is_missing_has_an_alert_of_its_own(store: Store) -> None:
    broker = MemoryBroker()
    sends = Sends(store, await scheduler(store), broker)
    await submit(store, [1, 2], "amqp:main/missing")
    await submit(store, [3])
    await sends.turns()
    assert list(await texts(store)) == ["amqp:main/missing"]
    assert len(broker.events["notices"]) == 1, "the others of that broker are sent"
    (info,) = sends.receivers.infos()
    assert (info.away, info.failed) == (None, 2)
    broker.missing.clear()
    await store.notices.retry_notices(Act("a"))
    await sends.turns()
    assert await texts(store) == {}


@pytest.mark.parametrize("to", [PLACE, "amqp:main/missing"])
async def test_the_alert_ends_when_nothing_waits_for_the_receiver_any_more(
    store: Store, world: World, to: str
) -> None:
    """Whoever raised it may have died."""
    broker = MemoryBroker(refuses_us=to == PLACE)
    await submit(store, [1, 2], to)
    await Sends(store, await scheduler(store), broker).turns()
    leader, term = supervisor(store, options=CALM), await term_of(store)
    await leader.once(term)
    assert len(await texts(store)) == 1
    for task in (1, 2):
        await store.notices.drop_notices(Act(f"a-{task}"), task)
    await leader.once(term)
    assert await texts(store) == {}


class Webhooks:
    """Hosts of which some are down. ``status``: what they answer, 0: nothing."""

    def __init__(self, *down: str, status: int) -> None:
        self.down = set(down)
        """Hosts, or URLs."""
        self.status = status
        self.urls: list[str] = []

    async def post(self, url: str, message_id: str, body: bytes) -> None:
        """Take an event, or not."""
        if {url, url.split("/")[2]} & self.down:
            raise DeliveryError("cannot be reached", status=self.status)
        self.urls.append(url)

    async def close(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("host", "status", "is_alert"),
    [
        ("shop.example", 0, True),
        ("shop.example", 503, True),
        ("shop.example", 404, False),
        ("tenant.wide.example", 0, False),
    ],
)
async def test_a_host_of_webhooks_that_the_settings_name_is_a_receiver_too(
    store: Store, world: World, host: str, status: int, is_alert: bool
) -> None:
    """One that answers is not away, whatever it answers; and submitters cannot raise alerts about names of their choice."""
    hooks = Webhooks(host, status=status)
    patience = Patience(tries=12, wait=10.0, factor=1.0)
    sends = Sends(store, await scheduler(store), MemoryBroker(), poster=hooks, patience=patience)
    await submit(store, range(1, 4), f"https://{host}/")
    for _ in range(5):
        await sends.turns()
        await sends.pass_by(world, 13.0)
    assert list(await texts(store)) == ([host] if is_alert else [])
    assert sends.receivers.infos() == (), "only brokers are listed by process"
    hooks.down.clear()
    await sends.turns()
    await sends.turns()
    assert await texts(store) == {}


async def test_an_early_try_at_a_host_of_which_one_path_fails_does_not_count(
    store: Store, world: World
) -> None:
    """Three failures in a row are taken for the host's, so what another path takes has one of them tried early."""
    hooks = Webhooks("https://shop.example/bad", status=500)
    patience = Patience(tries=12, wait=10.0, factor=1.0)
    sends = Sends(store, await scheduler(store), MemoryBroker(), poster=hooks, patience=patience)
    await submit(store, range(1, 4), "https://shop.example/bad")
    for task in range(10, 15):
        await sends.turns()
        await submit(store, [task], "https://shop.example/good")
        await sends.turns()
        await sends.pass_by(world, 13.0)
    assert len(hooks.urls) == 5
    assert [view.tries for view in await store.notices.listeners()] == [5, 5, 5]


async def test_an_alert_that_is_being_written_while_its_receiver_comes_back_ends(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was to be written next was taken for what had just been written, and the alert stayed open."""
    broker = MemoryBroker(refuses_us=True)
    sends = Sends(store, await scheduler(store), broker)
    alert = store.alerts.alert

    async def slow(alerts: Sequence[Alert]) -> None:
        await alert(alerts)
        broker.refuses_us = False
        sends.receivers.note_success(Due(1, 1, PLACE, 0, b"{}"))

    monkeypatch.setattr(store.alerts, "alert", slow)
    await submit(store, [1])
    await sends.turns()
    assert len(await store.alerts.views(100, ended=True, kind="receiver_away")) == 1
    assert await texts(store) == {}


@pytest.mark.parametrize("defect", [KeyError("brokers"), ValueError("amqp://me:hunter2@mq has no port")])
async def test_a_defect_of_a_client_that_is_asked_is_logged_and_the_broker_is_asked_again(
    store: Store, world: World, caplog: pytest.LogCaptureFixture, defect: Exception
) -> None:
    broker = MemoryBroker(away=True)
    sends = Sends(store, await scheduler(store), broker)
    await submit(store, [1])
    await sends.turns()
    broker.away, broker.defect = False, defect
    await sends.pass_by(world, 1.2 * PROBE)
    await sends.turns()
    (info,) = sends.receivers.infos()
    assert info.error == f"{type(defect).__name__}: {defect}".replace("hunter2", "•••")
    assert "hunter2" not in caplog.text
    assert [record.exc_info[1] for record in caplog.records if record.exc_info] == [defect]
    broker.defect = None
    await sends.pass_by(world, 1.2 * PROBE)
    await sends.turns()
    assert len(broker.events["notices"]) == 1


async def test_a_place_that_is_missing_keeps_nothing_back_for_other_places(
    store: Store, world: World
) -> None:
    """It took nothing last while its broker was away, so it is asked about; its own next try is hours off."""
    broker = MemoryBroker(away=True)
    sends = Sends(store, await scheduler(store), broker)
    await submit(store, [1])
    await sends.turns()
    await submit(store, [2], "amqp:main/missing")
    await sends.turns()
    broker.away = False
    for _ in range(3):
        await sends.pass_by(world, 1.2 * PROBE)
        await sends.turns()
    assert len(broker.events["notices"]) == 1
    assert list(await texts(store)) == ["amqp:main/missing"]


async def test_an_event_names_its_task_and_the_correlation_id_of_its_submitter(store: Store) -> None:
    """So a client finds the answer to its message by the field that its broker has for that."""
    broker = MemoryBroker()
    sends = Sends(store, await scheduler(store), broker)
    await store.tasks.submit(
        [draft(1, reply_to=PLACE, correlation_id="o-1"), draft(2, reply_to=PLACE, correlation_id=None)]
    )
    await sends.turns()
    names = {event.correlation_id for event in broker.events["notices"]}
    assert names == {"o-1", ""}
    assert {event.task for event in broker.events["notices"]} == {show(1), show(2)}


async def test_a_receiver_that_is_away_and_back_is_two_lines_of_the_log(
    store: Store, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """However many notices wait, and however often they are tried; each try is a line for those who look closely."""
    broker = MemoryBroker(away=True)
    patience = Patience(tries=12, wait=10.0, factor=1.0)
    sends = Sends(store, await scheduler(store), broker, patience=patience)
    with caplog.at_level(logging.DEBUG, "makegood.notifier"):
        await submit(store, range(1, 6))
        for _ in range(3):
            await sends.turns()
            await sends.pass_by(world, 13.0)
        broker.away = False
        await sends.pass_by(world, PROBE)
        await sends.turns(9)
    lines = [(r.levelname, r.getMessage()) for r in caplog.records]
    assert sum(level == "DEBUG" and "once more in" in text for level, text in lines) >= 5
    warning, back = (line for line in lines if line[0] != "DEBUG")
    assert warning[0] == "WARNING"
    assert warning[1].startswith("amqp:main takes no notices: the broker does not answer")
    assert back == ("INFO", "amqp:main takes notices again")
