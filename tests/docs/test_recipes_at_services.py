"""Each recipe that talks to a service, at a fake one that loses its first answer to each key, then says 409, and lags behind."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import makegood as mg
from tests.docs.test_recipes_page import FOLDER, MODULE, played, recipe
from tests.waiting import until

AT_SERVICES = {
    path.stem
    for path in FOLDER.glob("*.md")
    if any("def http(" in code for _, code in MODULE.findall(path.read_text(encoding="utf-8")))
}


class Service:
    """Does what it is asked once for each key, and answers only the third request for it: the first answer is lost, the second a 409."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.did: list[Any] = []

    def request(self, key: str, what: Any) -> str:
        """Return "lost", "running" or "done"."""
        self.requests[key] += 1
        if self.requests[key] == 1:
            self.did.append(what)
            return "lost"
        return "running" if self.requests[key] == 2 else "done"

    def over_http(self, key: str, what: Any) -> None:
        """Be a client of it, as the recipes' pages ask for."""
        answer = self.request(key, what)
        if answer == "lost":
            raise TimeoutError("the answer is lost")
        if answer == "running":
            raise mg.Later("10ms", "409: the first request still runs")


class Stripe(Service):
    """Stripe, as far as the recipe calls it: payments by their key, and a search that lags behind."""

    def __init__(self) -> None:
        super().__init__()
        self.payments: dict[str, str] = {}
        self.declines = False

    def http(self, method: str, path: str, headers: Any = None, **data: Any) -> dict[str, Any]:
        """Answer a request."""
        if "search" in path:
            return {}  # nothing yet
        assert method == "POST"
        key = headers["Idempotency-Key"]
        answer = self.request(key, (path, data))
        if answer == "lost" and path == "/v1/payment_intents" and not self.declines:
            self.payments[key] = f"pi_{len(self.payments) + 1}"
        if answer == "lost" and path == "/v1/refunds":
            payments = [k for k, payment in self.payments.items() if payment == data["payment_intent"]]
            assert len(payments) == 1, "not a payment"
            del self.payments[payments[0]]
            return self._lost()
        if answer == "lost":
            return self._lost()
        if answer == "running":
            return {"state": "running"}
        if self.declines and path == "/v1/payment_intents":
            return {"state": "declined"}
        return {"id": self.payments.get(key, "re_1"), "state": "succeeded"}

    def _lost(self) -> dict[str, Any]:
        raise TimeoutError("the answer is lost")


def test_every_recipe_that_talks_to_a_service_is_tried_here() -> None:
    recipes = {"stripe", "webhook-service", "poll-a-slow-service", "pivot-last", "follow-up-an-email"}
    in_lanes = {"newest-wins", "refuse-a-double-click", "limit-per-tenant"}  # test_lane_recipes
    assert (
        recipes | in_lanes | {"rate-per-tenant"} == AT_SERVICES
    )  # its PUT sets a record, as often as it is sent


def stripe(tmp_path: Path) -> tuple[Any, Stripe]:
    """Return the module of the recipe, at a fake Stripe, and that."""
    module, service = recipe(tmp_path, "stripe"), Stripe()
    module.http = service.http
    return module, service


def test_a_charge_is_made_once(tmp_path: Path) -> None:
    module, service = stripe(tmp_path)

    async def play(client: mg.Client) -> None:
        task = await client.submit(module.pay, "o-1", 500)
        assert await task.result("60s") == "pi_1"
        await task.undo(why="sent back")
        assert (await task.wait("60s")).state == "undone"

    played(module.shop, tmp_path, play)
    assert service.payments == {}
    assert [path for path, _ in service.did] == ["/v1/payment_intents", "/v1/refunds"]
    assert service.did[-1][1] == {"payment_intent": "pi_1"}


def test_a_charge_without_an_answer_is_refunded_when_another_step_fails(tmp_path: Path) -> None:
    """The task ends undone, and nobody has paid: an empty search says nothing."""
    module, service = stripe(tmp_path)
    ware = module.shop.agent("ware")

    @ware.action(complete_within="1m", undo=mg.NOTHING)  # type: ignore[untyped-decorator]  # the page's module has no types here
    def pack(order: str) -> str:
        if not service.did:
            raise mg.Later("10ms", "not before the charge was sent")
        raise mg.Permanent("sold out")

    @module.shop.workflow(complete_within="12h")  # type: ignore[untyped-decorator]  # as above
    def buy(order: str, cents: int) -> str:
        payment, _ = mg.parallel(module.charge(order, cents), pack(order))
        return payment  # type: ignore[no-any-return]  # the page's module has no types here

    async def play(client: mg.Client) -> None:
        with pytest.raises(mg.TaskUndone, match="sold out"):
            await (await client.submit(buy, "o-1", 990)).result("60s")

    played(module.shop, tmp_path, play)
    assert service.payments == {}
    assert sorted(path for path, _ in service.did) == ["/v1/payment_intents", "/v1/refunds"]


def test_a_declined_card_is_certain_although_the_first_answer_was_lost(tmp_path: Path) -> None:
    module, service = stripe(tmp_path)
    service.declines = True

    async def play(client: mg.Client) -> None:
        with pytest.raises(mg.TaskUndone, match="card declined") as error:
            await (await client.submit(module.pay, "o-1", 500)).result("60s")
        assert error.value.undone == ()

    played(module.shop, tmp_path, play)
    assert [path for path, _ in service.did] == ["/v1/payment_intents"]


def test_a_scan_is_started_once_and_its_webhook_finds_it(tmp_path: Path) -> None:
    module, service = recipe(tmp_path, "webhook-service"), Service()
    names: set[str] = set()

    def http(path: str, headers: dict[str, str], name: str) -> None:
        service.over_http(headers["Idempotency-Key"], path)
        names.add(name)

    module.http = http

    async def play(client: mg.Client) -> None:
        task = await client.submit(module.scan, "d-1")

        async def is_started() -> bool:
            return bool(names)

        await until(is_started)
        assert names == {task.id}
        await module.webhook(client, task.id, "delivery-1", "read")
        assert await task.result("60s") == "read"

    played(module.shop, tmp_path, play)
    assert service.did == ["/scans/d-1"]


def test_a_render_is_started_and_stopped_once(tmp_path: Path) -> None:
    module, service = recipe(tmp_path, "poll-a-slow-service"), Service()

    def http(method: str, path: str, headers: Any = None) -> dict[str, Any]:
        if headers is not None:
            service.over_http(headers["Idempotency-Key"], (method, path))
        return {"id": "r-1", "state": "ready"}

    module.http = http

    async def play(client: mg.Client) -> None:
        task = await client.submit(module.render_film, "f")
        assert await task.result("60s") == "r-1"
        await task.undo(why="the wrong film")
        assert (await task.wait("60s")).state == "undone"

    played(module.shop, tmp_path, play)
    assert service.did == [("POST", "/renders/f"), ("DELETE", "/renders/f")]


def test_a_book_is_published_once(tmp_path: Path) -> None:
    module, service = recipe(tmp_path, "pivot-last"), Service()

    def http(method: str, path: str, headers: dict[str, str]) -> str:
        service.over_http(headers["Idempotency-Key"], (method, path))
        return "published"

    module.http = http

    async def play(client: mg.Client) -> None:
        assert await (await client.submit(module.release_book, "b")).result("60s") == "published"

    played(module.shop, tmp_path, play)
    assert service.did == [("POST", "/published/b")]


def test_a_mail_and_its_apology_are_sent_once(tmp_path: Path) -> None:
    module, service = recipe(tmp_path, "follow-up-an-email"), Service()
    module.http = lambda _path, headers, text: service.over_http(headers["Idempotency-Key"], text)

    async def play(client: mg.Client) -> None:
        with pytest.raises(mg.TaskUndone, match="sold out"):
            await (await client.submit(module.sell, "o-2")).result("60s")

    played(module.shop, tmp_path, play)
    assert service.did == ["o-2 is on its way", "sorry: o-2 was cancelled"]
