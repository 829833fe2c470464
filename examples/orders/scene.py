"""What the stage shows at a moment: read from the processes, the store, the services' books and the auditor's report.

Everything is read here and nothing is decided: the page shows what it is given.
"""

import asyncio
import json
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from makegood.base.counts import quantity
from makegood.errors import StoreUnavailableError
from makegood.store.views import NodeView

from .acts import ACTS
from .auditor import Kind
from .broker_watch import BrokerWatch
from .chaos import BROKER, Chaos, Event
from .customers import Customers, Said
from .director import AWAY, FAULTS, KINDS_OF_ORDERS, RATES, SHARES, Director
from .processes import REGISTERED, SERVICES, Place, State
from .shop import LIMIT, NOT_APPROVED
from .waits import Waits
from .world import Services, ServicesError

GROUPS: Final = (
    ("Schedulers put steps in order", ("scheduler",)),
    ("Supervisors find what is overdue", ("supervisor",)),
    ("Agents call the services", ("agent",)),
    ("The shop, what makes tasks of its orders, who approves", ("shop", "inbox", "approver")),
    ("The services, and who watches", ("services", "console", "auditor")),
)
ZEROS: Final[Mapping[str, tuple[Kind, ...]]] = {
    "orders lost": (Kind.LOST, Kind.MISSING),
    "charged twice": (Kind.CHARGED_TWICE,),
    "left after an undo": (Kind.CHARGED_THOUGH_UNDONE, Kind.STANDING_THOUGH_UNDONE, Kind.NOT_LISTED),
}
"""The big figures, and the auditor's findings that count for them."""
SHOWN_ORDERS: Final = 13
AFTER_END, AFTER_ACT = 4.0, 15.0
"""Seconds for which an order that has ended is followed still, and one that an act was about."""
LASTS: Final = 3.0
"""Seconds for which a finding must last to be shown: the shop hears of a state a moment after it came about."""
FEED: Final[Mapping[str, tuple[str, str]]] = {
    "killed": ("failed", "need"), "died": ("error", "need"), "stopped": ("pause", "doubt"), "resumed": ("run", "run"),
    "started": ("run", "run"), "healed": ("done", "ok"), "turned": ("settle", "doubt"), "approved": ("done", "ok"),
    "refused": ("undone", "undo"), "settled": ("settle", "ok"),
}  # fmt: skip
SORRY: Final = (
    ("card refused", "card refused"), ("out of stock", "out of stock"), ("too heavy", "too heavy, refunded"),
    ("no van", "no van goes there, refunded"), ("damaged", "damaged, refunded"), (NOT_APPROVED, "not approved, refunded"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Post:
    """A line of the process wall."""

    name: str
    pid: int
    more: str
    look: str
    """"" alive, dead, stopped, quiet (no heartbeat)."""
    leads: bool
    runs: bool
    """Whether there is a process, stopped or not."""


@dataclass(frozen=True, slots=True)
class Customer:
    """A line of what the customers see."""

    order: str
    icon: str
    tone: str
    said: str
    ago: str


@dataclass(slots=True)
class Snapshot:
    """What was read last."""

    nodes: dict[int, NodeView] = field(default_factory=dict)
    term: int = 0
    leader: int = 0
    audit: dict[str, Any] = field(default_factory=dict)
    audited: float = 0.0
    calls: Counter[str] = field(default_factory=Counter)
    met: Counter[str] = field(default_factory=Counter)
    away: bool = False
    """Whether the store could not be read."""


class Books:
    """Reads the services' books as they grow: which effects of each order are in place."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._read = 0
        self.standing: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.charges: Counter[str] = Counter()
        """How often each order was charged."""

    def read(self) -> None:
        """Read the new entries."""
        with closing(sqlite3.connect(f"{self._file.as_uri()}?mode=ro", uri=True, timeout=2.0)) as db:
            rows = db.execute(
                "SELECT id, effect, change, order_id FROM entry WHERE id > ? ORDER BY id", (self._read,)
            ).fetchall()
        for number, effect, change, order in rows:
            self._read = number
            self.standing[order][effect] += change
            self.charges[order] += effect == "charge" and change > 0


class Watcher:
    """Reads what the page shows."""

    def __init__(
        self,
        director: Director,
        services: Services,
        waits: Waits,
        *,
        report: Path,
        console: str,
        title: str,
        broker: BrokerWatch | None = None,
    ) -> None:
        self.director = director
        self.console = console
        """The console's address, "" where none runs."""
        self.now = Snapshot()
        self._chaos: Chaos = director.chaos
        self._customers: Customers = director.customers
        self._services = services
        self._waits = waits
        self._books = Books(services.books)
        self._report = report
        self._title = title
        self._broker_watch = broker
        self._seen: dict[str, float] = {}
        self._asked: list[tuple[float, Counter[str], Counter[str]]] = []

    async def read(self) -> None:
        """Read everything anew."""
        now = self.now
        try:
            views = await self._chaos.views()
            now.nodes = {view.info.pid: view for view in views if not view.is_stopped}
            now.term, holder = await self._chaos.term()
            leader = self._chaos.leader_of(holder)
            if self._broker_watch is not None:
                await self._broker_watch.look()
            now.leader, now.away = leader.pid if leader else 0, False
        except StoreUnavailableError:
            now.away = True
        await self._waits.look(has_leader=now.leader > 0)
        await asyncio.to_thread(self._read_files)
        if self._chaos.world.state is State.RUNNING:
            await asyncio.to_thread(self._ask_services)
        self._choose()

    def _read_files(self) -> None:
        try:
            self._books.read()
        except sqlite3.Error:
            return  # they are being written; the next look finds them
        if self._report.exists():
            self.now.audit = json.loads(self._report.read_text())
            self.now.audited = time.time() - self._report.stat().st_mtime

    def _ask_services(self) -> None:
        try:
            calls, faults = self._services.counts()
        except ServicesError:
            return
        spoilt = Counter[str]()
        for place, count in faults.items():
            spoilt[place.partition("/")[0]] += 0 if place.endswith(" slow") else count
        self._asked = [*self._asked[-80:], (time.monotonic(), Counter(calls), spoilt)]

    def _choose(self) -> None:
        """Follow the newest open order, unless the one that is followed is open, or has just ended."""
        director, orders = self.director, self._customers.orders
        customer = orders.get(director.follows)
        in_act = director.act.order == director.follows and not director.act.over
        stays = AFTER_ACT if director.act.order == director.follows else AFTER_END
        if customer is not None and (in_act or not customer.told.outcome or _age(customer.ended) < stays):
            return
        for name in reversed(orders):
            if not orders[name].told.outcome and orders[name].state:
                director.follows = name
                return

    # -- what is shown -------------------------------------------------------------------------------------------------

    def look(self, order: str = "") -> dict[str, Any]:
        """Return what the page's template needs. ``order``: the one that a visitor chose, "" for the followed one."""
        orders = self._customers.orders
        choice = order if order in orders else self.director.follows
        return {
            "title": self._title, "console": self.console, "settings": self.director.settings, "zeros": self._zeros(),
            "figures": self._figures(), "waits": self._waits.line, "money": self._money(), "wall": self._wall(), "broker": self._broker(), "dials": self._dials(),
            "followed": choice, "chosen": order if order in orders else "", "said": orders.get(choice),
            "act": self.director.act, "acts": ACTS, "feed": self._feed(), "customers": self._shown(),
            "shares": tuple(SHARES), "rates": tuple(RATES), "kinds": tuple(KINDS_OF_ORDERS),
        }  # fmt: skip

    def _zeros(self) -> list[tuple[int, str, str]]:
        lasting: Counter[str] = Counter()
        now = time.monotonic()
        findings = [(f["kind"], f["order"], f["detail"]) for f in self.now.audit.get("findings", ())]
        names = {" ".join(finding) for finding in findings}
        self._seen = {name: self._seen.get(name, now) for name in names}
        for kind, order, detail in findings:
            lasting[kind] += now - self._seen[f"{kind} {order} {detail}"] >= LASTS
        counts = [sum(lasting[kind] for kind in kinds) for kinds in ZEROS.values()]
        charges = self.now.audit.get("effects", {}).get("charge", {})
        beside = (
            f"of {len(self._customers.orders):,}",
            f"of {charges.get('done', 0):,}",
            f"of {quantity(charges.get('undone', 0), 'refund')}",
        )
        return list(zip(counts, ZEROS, beside, strict=True))

    def _figures(self) -> list[tuple[str, str, str]]:
        outcomes = Counter(customer.told.outcome for customer in self._customers.orders.values())
        score = self._chaos.score
        heal = f"{score.heals[-1]:.1f} s" if score.heals else "–"
        return [
            (f"{len(self._customers.orders):,}", "placed", ""),
            (f"{outcomes['processed']:,}", "processed", "fg-ok"),
            (f"{outcomes['undone']:,}", "undone", "fg-undo"),
            (f"{outcomes['']:,}", "under way", "fg-run"),
            (f"{outcomes['error']:,}", "in error", "fg-need" if outcomes["error"] else ""),
            (f"{score.survived:,}", "kills survived", ""),
            (heal, "last heal", ""),
        ]

    def _money(self) -> dict[str, str]:
        audit = self.now.audit
        if not audit:
            return {}
        amounts = {name: f"{cents / 100:,.2f}" for name, cents in audit["money"].items()}
        lasting = [finding for finding, since in self._seen.items() if time.monotonic() - since >= LASTS]
        return amounts | {
            "age": f"{max(0.0, self.now.audited):.1f} s",
            "wrong": lasting[0] if lasting else "",
        }

    def _wall(self) -> list[tuple[str, list[Post]]]:
        places = self._chaos.places.values()
        return [
            (head, [self._post(place) for role in roles for place in places if place.role == role])
            for head, roles in GROUPS
        ]

    def _broker(self) -> dict[str, Any] | None:
        """The broker's process, and how many orders and notices are where; None without one."""
        watch = self._broker_watch
        if watch is None:
            return None
        orders = self._customers.orders.values()
        figures = [
            (f"{sum(not order.told.order for order in orders):,}", "orders to publish"),
            ("–" if watch.waiting is None else f"{watch.waiting:,}", "orders wait in it"),
            (f"{watch.notices:,}", "tasks with notices to send"),
            (f"{sum(len(order.notices) for order in orders):,}", "notices came"),
        ]
        post = self._post(self._chaos.places[BROKER])
        if not post.look and watch.waiting is None:
            post = replace(post, look="quiet", more="does not answer yet")
        return {"title": watch.title, "post": post, "figures": figures}

    def _post(self, place: Place) -> Post:
        node = self.now.nodes.get(place.pid)
        runs = place.state in (State.RUNNING, State.STOPPED)
        look = {State.RUNNING: "", State.STOPPED: "stopped"}.get(place.state, "dead")
        age = f"{time.monotonic() - place.since:.0f} s"
        leads = place.state is State.RUNNING and place.pid == self.now.leader
        if place.state is State.STOPPED:
            more = f"stopped for {age}"
        elif not runs:
            soon = AWAY - (time.monotonic() - place.since)
            more = f"killed {age} ago"
            if self.director.settings.replace and soon > 0:
                more += f"; a new one in {soon:.0f} s"
        elif place.role not in REGISTERED:
            more = self._other(place)
        elif node is None:
            look, more = "quiet", "starts"
        elif node.remaining <= 0:
            look, more = "quiet", "no heartbeat"
        else:
            more = self._at_work(place, node, leads=leads)
        return Post(place.name, place.pid, more, look, leads, runs)

    def _at_work(self, place: Place, node: NodeView, *, leads: bool) -> str:
        if place.role == "scheduler":
            return _counted(node.info.held, "order")
        if place.role == "supervisor":
            return f"leads, term {self.now.term}" if leads else "follows"
        if place.role == "inbox":
            return "makes tasks"
        text = _counted(sum(agent.used for agent in node.info.agents), "call")
        for agent in node.info.agents:
            if agent.circuit not in ("", "closed"):
                text = f"circuit {agent.circuit}" + (f", {agent.reset:.0f} s" if agent.reset > 0 else "")
        return text

    def _other(self, place: Place) -> str:
        if place.role == "auditor":
            return f"{self.now.audited:.0f} s ago" if self.now.audit else "starts"
        return {
            "shop": "places orders",
            "approver": "answers large orders",
            "services": "own books",
            BROKER: "keeps what waits on its disk",
            "console": "for operators",
        }[place.role]

    def _dials(self) -> list[dict[str, Any]]:
        dials = []
        for service in SERVICES:
            on = self.director.settings.dials[service]
            dials.append({"name": service, "said": self._rate(service), "on": on, "faults": FAULTS})
        return dials

    def _rate(self, service: str) -> str:
        """How many calls a minute a service gets, and how many it answers, over the last half minute or so."""
        if self._chaos.world.state is not State.RUNNING:
            return "nobody answers"
        if len(self._asked) < 2:
            return "calls are being counted"
        (start, before, faults_before), (end, asked_now, met_now) = self._asked[0], self._asked[-1]
        if asked_now[service] < before[service] or end - start < 1.0:  # they were started anew
            self._asked = self._asked[-1:]
            return "calls are being counted"
        calls, spoilt = asked_now[service] - before[service], met_now[service] - faults_before[service]
        share = f", {100 * max(0, calls - spoilt) / calls:.0f}% answered" if calls else ""
        return f"{60 * calls / (end - start):,.0f} calls/min{share}"

    def _feed(self) -> list[dict[str, str]]:
        return [
            {**_fed(event), "ago": f"{time.monotonic() - at:.0f} s ago"}
            for at, event in reversed(self.director.feed)
        ]

    def _shown(self) -> list[Customer]:
        orders = self._customers.orders
        names = list(orders)[: -SHOWN_ORDERS - 1 : -1]
        for name in (self.director.follows, self.director.act.order):
            if name in orders and name not in names:
                names = [*names[: SHOWN_ORDERS - 1], name]
        return [Customer(name, *self._told(orders[name]), f"{_age(orders[name].at):.0f} s") for name in names]

    def _told(self, customer: Said) -> tuple[str, str, str]:
        """What a customer knows: from the shop's answers, and from their own bank and parcel service."""
        standing = {effect for effect, count in self._books.standing[customer.order.id].items() if count > 0}
        back = "money on its way back" if "charge" in standing else "we cannot deliver"
        if customer.state not in ("processing", "received", "accepted", "sleeping", "pending"):
            return {
                "": ("waiting", "idle", "sending the order…"),
                "processed": ("done", "ok", f"shipped: {customer.result}"),
                "undone": ("undone", "undo", f"sorry: {_why(customer.cause)}"),
                "error": ("error", "need", "sorry: we are looking into it"),
                "undoing": ("undoing", "undo", f"sorry: {back}"),
            }[customer.state]
        if customer.order.cents > LIMIT and not customer.told.approvers and {"pack", "book"} <= standing:
            return "waiting", "doubt", "paid, waiting for an approval"
        if "charge" in standing:
            progress = (
                "on its way" if "ship" in standing else "packing" if standing & {"pack", "book"} else ""
            )
            return "run", "run", f"paid, {progress}" if progress else "paid"
        return "waiting", "run", "received, paying…" if "reserve" in standing else "received"


def _age(since: float) -> float:
    return max(0.0, asyncio.get_running_loop().time() - since)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" + ("s" if count != 1 else "")


def _why(cause: str) -> str:
    return next((words for text, words in SORRY if text in cause), "we could not deliver, refunded")


def _fed(event: Event) -> dict[str, str]:
    icon, tone = FEED.get(event.kind, ("dot", "idle"))
    return {"icon": icon, "tone": tone, "kind": event.kind, "who": event.name, "text": event.text}
