"""The stage's door: who may press, what, and that nothing is touched which the demo did not start."""

import asyncio
import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

import makegood as mg
from examples.orders import shop
from examples.orders.acts import ACTS
from examples.orders.approver import MAY_APPROVE
from examples.orders.auditor import Told
from examples.orders.chaos import Blow, Chaos
from examples.orders.customers import Customers, Said
from examples.orders.director import FAULTS, KINDS_OF_ORDERS, Settings
from examples.orders.processes import Place, Post, State, Wall
from examples.orders.shop import LIMIT, Approval, Order
from examples.orders.stage import Show
from examples.orders.stage_pages import Stage, serving
from examples.orders.storefront import TOLD
from examples.orders.visitor import VISITOR, WHY, RefusedError
from examples.orders.waits import Waits
from examples.orders.world import Services
from makegood import Client
from makegood.console.security_headers import POLICY
from makegood.errors import ConfigError
from makegood.store.views import AgentInfo, NodeInfo
from tests.waiting import moment

WAITS = ("0", "--bind", "127.0.0.1")
"""A process that does nothing until it is ended: a server that nobody asks."""


@dataclass
class Answer:
    """An answer of the stage."""

    status: int
    headers: Mapping[str, str]
    text: str


@dataclass
class Theatre:
    """A stage with two idle processes on its wall, and services."""

    stage: Stage
    show: Show
    chaos: Chaos
    wall: Wall
    url: str

    async def ask(
        self, path: str, form: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send one request, as a browser's form does."""
        own = {"Authorization": f"Bearer {self.stage.token}", **(headers or {})}
        return await asyncio.to_thread(_asked, self.url, path, form, own)

    async def press(self, path: str, **form: str) -> Answer:
        """Press a button of the page."""
        return await self.ask(path, {"token": self.stage.token, **form})

    def pids(self) -> dict[str, int]:
        """The processes that run, by place."""
        return {p.name: p.pid for p in self.chaos.places.values() if p.state is State.RUNNING}


def _asked(url: str, path: str, form: Mapping[str, str] | None, headers: Mapping[str, str]) -> Answer:
    at = urlsplit(url)
    connection = http.client.HTTPConnection(str(at.hostname), at.port, timeout=30)
    try:
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        body = None if form is None else urlencode(form)
        connection.request("GET" if form is None else "POST", path, body, {**kind, **headers})
        answer = connection.getresponse()
        return Answer(answer.status, dict(answer.getheaders()), answer.read().decode())
    finally:
        connection.close()


@asynccontextmanager
async def theatre(folder: Path) -> AsyncIterator[Theatre]:
    """Open a stage with little on it."""
    posts = [Post(name, "agent", WAITS, "http.server") for name in ("payments-1", "payments-2")]
    url = f"sqlite:///{folder / 'store.db'}"
    with (
        Services(folder / "books.db", bound_to_starter=True) as services,
        Wall(posts, folder, settings={}, more={}) as wall,
    ):
        async with Client(url, migrate=True) as client:
            customers = Customers(client, folder)
            chaos = Chaos(wall, services, client, random.Random(1), lambda _: None)
            for name in wall.places:
                wall.start(name)
            waits = Waits(client, customers, chaos.places)
            show = Show(chaos, customers, client, services, folder, waits=waits)
            stage = show.staged(seed=1, store="sqlite", prefix="o-", console="")
            async with serving(stage, 0) as address:
                yield Theatre(stage, show, chaos, wall, address)


@asynccontextmanager
async def large_order(here: Theatre, folder: Path) -> AsyncIterator[mg.TaskHandle[str]]:
    """Have a large order that waits for its approval, and a Scheduler; yield its task."""
    app = mg.App("shop")
    approval = app.signal("approval", Approval)

    @app.workflow(name="place_order")
    def waits(_: Order) -> str:
        return mg.wait_for(approval, timeout="1m", otherwise=Approval(yes=False, by="nobody")).by

    order = Order("o-1", "chair", LIMIT + 1)
    here.show.customers.orders["o-1"] = Said(order, 0.0, "processing", told=Told("o-1"))
    async with mg.Node(app, f"sqlite:///{folder / 'store.db'}", roles=("scheduler",)) as node:
        task = await node.client.submit(waits, order, key="o-1")
        while "waits for an approval" not in (await here.ask("/")).text:
            await moment()
        yield task


def _bystander() -> subprocess.Popen[bytes]:
    """A process that is none of the demo's."""
    return subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)


def _state(pid: int) -> str:
    """What the kernel says of a process: T is stopped; "" when there is none."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.read_text().rpartition(")")[2].split()[0] if stat.exists() else ""


async def _becomes(pid: int, states: str) -> None:
    """Wait until a process is in one of some states: a busy kernel takes a moment."""
    while _state(pid) not in tuple(states):
        await moment()


async def test_a_heal_is_seen_however_late_the_store_is_looked_at(tmp_path: Path) -> None:
    """On a busy machine the dead process's life is over by then, and others have what it held; what it answered is no heal."""
    async with theatre(tmp_path) as here:
        place = here.chaos.places["payments-1"]
        async with Client(f"sqlite:///{tmp_path / 'store.db'}") as client:
            node = await client.store.nodes.register(
                NodeInfo("payments-1", ("agent",), "here", place.pid, 0.0, ())
            )
        assert await here.chaos.in_hands(place) == (node, frozenset())
        wound = here.chaos.kill("payments-1", "agent", node, frozenset({4711}))
        await here.chaos.recover(wound, None)
        assert here.chaos.score.heals == [], "it is gone at once: it was answered"
        await here.chaos.recover(replace(wound, at=wound.at - 3.0), None)
        assert len(here.chaos.score.heals) == 1


async def test_a_process_that_still_starts_is_not_struck(tmp_path: Path) -> None:
    """On a busy machine starting takes half a minute: else nobody would be left to do the work."""
    async with theatre(tmp_path) as here:
        pid = here.chaos.places["payments-2"].pid
        async with Client(f"sqlite:///{tmp_path / 'store.db'}") as client:
            await client.store.nodes.register(NodeInfo("payments-2", ("agent",), "here", pid, 60.0))
        await here.chaos.strike(Blow(0.0, "agent", 0.0))
        assert [place.name for place in here.chaos.places.values() if place.kills] == ["payments-2"]


async def test_two_blows_of_one_moment_do_not_hit_one_process_twice(tmp_path: Path) -> None:
    async with theatre(tmp_path) as here:
        async with Client(f"sqlite:///{tmp_path / 'store.db'}") as client:
            for name in ("payments-1", "payments-2"):
                pid = here.chaos.places[name].pid
                await client.store.nodes.register(NodeInfo(name, ("agent",), "here", pid, 60.0))
        first, second = (here.chaos.places[name] for name in ("payments-1", "payments-2"))
        victims = iter([first, first, second])  # chosen before the other blow has fallen

        async def victim(role: str) -> tuple[Place, str]:
            return next(victims), role

        here.chaos._victim = victim  # type: ignore[method-assign]
        await asyncio.gather(*(here.chaos.strike(Blow(0.0, "agent", 0.0)) for _ in range(2)))
        assert (first.kills, second.kills) == (1, 1)


async def test_the_page_says_what_open_orders_wait_for(tmp_path: Path) -> None:
    async with theatre(tmp_path) as here:
        assert "wait" not in json.loads((await here.ask("/fragments")).text)["score"]
        agent = AgentInfo("shop/payments", 20, circuit="open", reset=2.0)
        async with Client(f"sqlite:///{tmp_path / 'store.db'}") as client:
            await client.store.nodes.register(NodeInfo("payments-1", ("agent",), "here", 1, 60.0, (agent,)))
        customers = here.show.customers
        customers.orders["o-1"] = Said(Order("o-1", "pen", 300), 0.0, "accepted", told=Told("o-1"))
        text = "1 order waits in the queue, and no submission process is alive"
        while text not in json.loads((await here.ask("/fragments")).text)["score"]:
            await moment()


async def test_the_page_opens_for_the_token_of_the_printed_address(tmp_path: Path) -> None:
    """Which becomes a cookie and leaves the address. Whoever else has an account here sees nothing, and no way to the console."""
    async with theatre(tmp_path) as here:
        for path in ("/", "/fragments", "/events", "/?token=", f"/?token={here.stage.token}x"):
            for strange in (
                {"Authorization": ""},
                {"Authorization": "Bearer x"},
                {"Authorization": "", "Cookie": "makegood_stage=x"},
            ):
                refusal = await here.ask(path, headers=strange)
                assert (refusal.status, here.stage.token in refusal.text) == (401, False), path
        response = await here.ask(f"/?order=o-1&token={here.stage.token}", headers={"Authorization": ""})
        assert (response.status, response.headers["location"]) == (303, "/?order=o-1")
        assert response.headers["referrer-policy"] == "no-referrer"
        cookie = response.headers["set-cookie"]
        assert {"httponly", "samesite=strict"} <= {part.strip().lower() for part in cookie.split(";")}
        own = {"Authorization": "", "Cookie": cookie.partition(";")[0]}
        assert (await here.ask("/", headers=own)).status == 200


async def test_every_button_needs_the_pages_token(tmp_path: Path) -> None:
    """Enumerated from the routes: a new one is in here."""
    async with theatre(tmp_path) as here:
        before = here.pids()
        paths = [f"/{name}" for name in here.stage.buttons()]
        assert len(paths) >= 6
        form = {"name": "payments-1", "do": "kill", "number": "7", "kind": "order", "service": "stock"}
        for path in paths:
            for token in ({}, {"token": ""}, {"token": "x" * 32}, {"token": here.stage.token[:-1]}):
                assert (await here.ask(path, {**form, **token})).status == 403, path
            assert (await here.ask(path)).status == 405, "nothing is pressed by a link"
        assert here.pids() == before
        assert here.show.director.act.number == 0


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example"},
    ],
)
async def test_a_button_on_somebody_elses_page_does_nothing(tmp_path: Path, headers: dict[str, str]) -> None:
    async with theatre(tmp_path) as here:
        before = here.pids()
        form = {"token": here.stage.token, "name": "payments-1", "do": "kill"}
        assert (await here.ask("/process", form, headers)).status == 403
        assert here.pids() == before
        if "Host" in headers:
            page = await here.ask("/", headers=headers)
            assert (page.status, here.stage.token in page.text) == (403, False)


async def test_it_listens_on_one_address_of_this_machine(tmp_path: Path) -> None:
    async with theatre(tmp_path) as here:
        port = urlsplit(here.url).port or 0
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), timeout=5)
        with pytest.raises(OSError):
            socket.create_connection(("::1", port), timeout=5)


async def test_the_buttons_do_what_they_say_to_a_real_process(tmp_path: Path) -> None:
    async with theatre(tmp_path) as here:
        pid = here.pids()["payments-1"]
        here.show.director.settings.replace = False
        assert (await here.press("/process", name="payments-1", do="stop")).status == 303
        await _becomes(pid, "T")
        assert (await here.press("/process", name="payments-1", do="start")).status == 303
        await _becomes(pid, "SR")
        assert (await here.press("/process", name="payments-1", do="kill")).status == 303
        assert _state(pid) == ""
        assert (await here.press("/process", name="payments-1", do="kill")).status == 409
        assert (await here.press("/process", name="payments-1", do="start")).status == 303
        assert here.pids()["payments-1"] != pid


async def test_the_services_are_killed_and_come_back_with_their_dials(tmp_path: Path) -> None:
    async with theatre(tmp_path) as here:
        here.show.director.settings.replace = False
        assert (await here.press("/dial", service="payments", fault="down")).status == 303
        assert (await here.press("/process", name="services", do="kill")).status == 303
        assert here.chaos.world.state is State.KILLED
        assert (await here.press("/process", name="services", do="start")).status == 303
        dials = await asyncio.to_thread(here.show.services.dials)
        assert dials["payments"]["abort"] == 1.0
        assert "abort" not in dials["stock"]


async def test_services_that_are_killed_while_they_start_can_be_started_again(tmp_path: Path) -> None:
    async with theatre(tmp_path) as here:
        here.show.director.settings.replace = False
        await here.press("/process", name="services", do="kill")
        buttons = ("start", "kill", "start", "kill")
        answers = await asyncio.gather(*(here.press("/process", name="services", do=do) for do in buttons))
        assert {answer.status for answer in answers} <= {303, 409}
        await here.press("/process", name="services", do="start")
        assert here.chaos.world.state is State.RUNNING
        assert (
            await asyncio.to_thread(here.show.services.under_way) >= 0
        )  # it answers; agents may call it by now


async def test_a_port_that_is_taken_is_said_in_a_sentence(tmp_path: Path) -> None:
    async with theatre(tmp_path) as here:
        port = urlsplit(here.url).port or 0
        with pytest.raises(ConfigError, match=f"port {port}"):
            async with serving(here.stage, port):
                pass


async def test_a_name_that_is_not_on_the_wall_touches_nothing(tmp_path: Path) -> None:
    """Neither another process's number nor its name: here a bystander that the test itself started."""
    bystander = _bystander()
    try:
        async with theatre(tmp_path) as here:
            before = here.pids()
            for name in (str(bystander.pid), str(os.getpid()), "", "python", "payments-3", "../payments-1"):
                for do in ("kill", "stop", "start"):
                    answer = await here.press("/process", name=name, do=do)
                    assert answer.status == 409, (name, do)
            for path, form in (
                ("/process", {"name": "payments-1", "do": "burn"}),
                ("/dial", {"service": "bank", "fault": "down"}),
                ("/dial", {"service": "stock", "fault": "explode"}),
                ("/switch", {"switch": "follows", "value": "on"}),
                ("/switch", {"switch": "rate", "value": "1000/s"}),
                ("/order", {"kind": "<script>"}),
                ("/act", {"number": "9"}),
                ("/act", {"number": "one"}),
                ("/all", {"do": "burn"}),
            ):
                assert (await here.press(path, **form)).status == 409, (path, form)
            assert here.pids() == before
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.communicate()


async def test_a_number_that_is_anothers_by_now_gets_no_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process has ended and been waited for; the kernel may have given the number away."""
    async with theatre(tmp_path) as here:
        place = here.chaos.places["payments-1"]
        assert place.process is not None
        os.kill(place.pid, signal.SIGKILL)
        place.process.wait()
        pid, signals = place.pid, []
        with monkeypatch.context() as patch:
            patch.setattr(os, "kill", lambda pid, _: signals.append(pid))
            for do in ("stop", "start", "kill"):
                await here.press("/process", name="payments-1", do=do)
        assert pid not in signals


async def test_pages_carry_the_policy_and_nothing_inline(tmp_path: Path) -> None:
    async with theatre(tmp_path) as here:
        page = await here.ask("/")
        assert page.status == 200
        assert re.findall(r'\son\w+="|style="|javascript:|<style', page.text) == []
        assert re.findall(r"<script[^>]*>(.)", page.text) == ["<"], "one script, and it is a file"
        paths = re.findall(r'(?:href|src)="(/static/[^"]+)"', page.text)
        assert len(paths) >= 3
        for path in ("/", "/fragments", "/nowhere-at-all", *paths):
            answer = await here.ask(path)
            assert answer.headers.get("content-security-policy", POLICY) == POLICY
            assert answer.status == (404 if path == "/nowhere-at-all" else 200), path
        assert (await here.ask("/static/0000/stage.js")).status == 404
        assert (await here.ask("/static/0000/../../etc/passwd")).status == 404


async def test_it_works_without_javascript(tmp_path: Path) -> None:
    """The page reloads itself, and each button is in a form that posts to a route that there is."""
    async with theatre(tmp_path) as here, large_order(here, tmp_path):
        page = (await here.ask("/")).text
        assert '<noscript><meta http-equiv="refresh"' in page
        forms = re.findall(r'<form method="post" action="(/\w+)"[^>]*>(.*?)</form>', page, re.DOTALL)
        forms += re.findall(
            r'<form class="(?:dial|answer)" method="post" action="(/\w+)"[^>]*>(.*?)</form>', page, re.DOTALL
        )
        assert {action.strip("/") for action, _ in forms} == set(here.stage.buttons())
        assert all(here.stage.token in body for _, body in forms)
        assert page.count("<form") == len(forms)
        buttons = sum(body.count("<button") for _, body in forms)
        assert buttons + page.count('<button class="btn btn--quiet btn--icon opt"') == page.count("<button")
        for number in ACTS:
            assert f'name="number" value="{number}"' in page
        for fault in FAULTS:
            assert f'name="fault" value="{fault}"' in page


async def test_a_large_order_is_answered_by_its_buttons_once(tmp_path: Path) -> None:
    """The button sends a signal in the visitor's name, which the shop's book and the audit have; then there is none any more."""
    async with theatre(tmp_path) as here, large_order(here, tmp_path) as task:
        page = (await here.ask("/")).text
        assert re.search(r"o-1 waits for an approval: <b>\d+ s left", page)
        assert re.search(r"\S+ left: waits for approval, a signal, until \S+Z", page), (
            "its ladder says it, too"
        )
        assert (await here.press("/answer", order="o-1", yes="yes")).status == 303
        assert await task.result(timeout="60s") == VISITOR
        refusal = await here.press("/answer", order="o-1", yes="no")
        assert (refusal.status, "approved o-1 already" in refusal.text) == (409, True)
        lines = [json.loads(line) for line in (tmp_path / TOLD).read_text().splitlines()]
        assert lines == [{"order": "o-1", "approved_by": VISITOR, "why": WHY}]
        async with Client(f"sqlite:///{tmp_path / 'store.db'}") as client:
            audits = await client.audit(task.id)
        assert [(audit.kind, audit.who, audit.why) for audit in audits] == [("signal", VISITOR, WHY)]
        here.show.customers.hear()
        assert here.show.customers.told["o-1"].approvers == {VISITOR}
        assert "waits for an approval" not in (await here.ask("/")).text


async def test_an_order_without_a_task_or_without_need_takes_no_answer(tmp_path: Path) -> None:
    async with theatre(tmp_path) as here:
        for name, cents in (("o-1", LIMIT), ("o-2", LIMIT + 1)):
            here.show.customers.orders[name] = Said(Order(name, "chair", cents), 0.0, told=Told(name))
        for order, yes, words in (
            ("o-1", "yes", "no order 'o-1' needs an approval"), ("", "no", "needs an approval"), ("o-9", "yes", "needs an approval"),
            ("o-2", "maybe", "no answer is called 'maybe'"), ("o-2", "yes", "o-2 takes no answer"),
        ):  # fmt: skip
            answer = await here.press("/answer", order=order, yes=yes)
            assert (answer.status, words in answer.text) == (409, True), answer.text


async def test_the_day_is_settled_by_a_button_once_there_is_a_schedule(tmp_path: Path) -> None:
    """Agents write it when they start; here the test does."""
    async with theatre(tmp_path) as here:
        refusal = await here.press("/settle")
        assert (refusal.status, "schedule" in refusal.text) == (409, True)
        async with Client(f"sqlite:///{tmp_path / 'store.db'}") as client:
            await client.schedule(shop.settle_day.name, shop.settle_day, mg.MOMENT, cron="0 2 * * *")
            assert (await here.press("/settle")).status == 303
            tasks = await client.find(mg.Filter(workflow=shop.settle_day.name))
            assert len(tasks) == 1
        assert "the nightly settlement was triggered" in (await here.ask("/")).text


async def test_at_the_end_of_the_show_what_waits_for_a_visitor_is_refused(tmp_path: Path) -> None:
    """Nobody waits a minute for an answer that nobody gives any more; what the approver answers is its own."""
    async with theatre(tmp_path) as here, large_order(here, tmp_path) as task:
        smaller = Said(Order("o-2", "chair", LIMIT + 1), 0.0, told=Told("o-2"))
        here.show.customers.orders |= {"o-2": smaller}
        here.show.customers.orders["o-1"].order.cents = MAY_APPROVE + 1
        await here.show.director._refuse_what_waits()
        assert await task.result(timeout="60s") == VISITOR
        lines = [json.loads(line) for line in (tmp_path / TOLD).read_text().splitlines()]
        assert lines == [{"order": "o-1", "refused_by": VISITOR, "why": "the show is over"}]


async def test_a_hostile_name_is_shown_as_text_and_follows_nobody(tmp_path: Path) -> None:
    async with theatre(tmp_path) as here:
        evil = '"><script>alert(1)</script>'
        here.show.customers.want(Order(evil, "pen", 1))
        for order in (evil, "o-nobody"):
            page = await here.ask(f"/?{urlencode({'order': order})}")
            assert page.status == 200
            assert "<script>alert" not in page.text


async def test_services_that_die_while_the_page_asks_them_are_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is asked of them second meets nobody: it was answered with 500 while everything was killed."""
    async with theatre(tmp_path) as here:
        really, count = http.client.HTTPConnection.getresponse, 0

        def getresponse(connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
            nonlocal count
            if connection.port != urlsplit(here.show.services.url).port:
                return really(connection)
            count += 1
            if count > 1:
                raise ConnectionResetError("killed")
            return really(connection)

        monkeypatch.setattr(http.client.HTTPConnection, "getresponse", getresponse)
        monkeypatch.setattr("examples.orders.stage_pages.LOOK_EVERY", 0.0)  # each look reads, on any machine
        for _ in range(2):
            assert (await here.ask("/fragments")).status == 200
        assert count == 2


async def test_only_large_orders_of_the_buttons_wait_for_a_visitor(tmp_path: Path) -> None:
    """The acts of other orders show what they show, whatever their customers drew."""
    async with theatre(tmp_path) as here:
        director, orders = here.show.director, here.show.customers.orders
        names = {kind: [director.order(kind) for _ in range(40)] for kind in KINDS_OF_ORDERS}
        for kind, orders_of_kind in names.items():
            cents = [orders[name].order.cents for name in orders_of_kind]
            assert min(cents) > MAY_APPROVE if kind == "large" else 0 < max(cents) <= LIMIT, kind


async def test_looking_changes_nothing(tmp_path: Path) -> None:
    async with theatre(tmp_path) as here:
        before = here.pids(), dict(here.show.director.settings.dials), len(here.show.customers.orders)
        for path in ("/", "/fragments", "/?order=x", "/process", "/act", "/all"):
            await here.ask(path)
        assert (here.pids(), here.show.director.settings.dials, len(here.show.customers.orders)) == before


async def test_a_long_form_is_refused(tmp_path: Path) -> None:
    async with theatre(tmp_path) as here:
        assert (await here.press("/order", kind="x" * 100_000)).status == 413


def test_a_switch_takes_its_own_values_only() -> None:
    settings = Settings()
    for switch, value in (("chaos", "maybe"), ("dials", "well"), ("rate", ""), ("put", "on")):
        with pytest.raises(RefusedError):
            settings.put(switch, value)
    settings.put("chaos", "on")
    assert settings.chaos is True
