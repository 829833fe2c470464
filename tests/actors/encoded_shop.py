"""An app whose payloads are encoded, and that says a canary wherever a user's code can say something."""

import base64
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import makegood as mg
from makegood.payload.envelopes import Codec
from tests.conformance.worlds import World

CANARY = "canary-4711"
"""What is in every value, every text of an error and every message, and must be in no row, log line or page."""
KEYS = {"k1": b"1" * 32}
FORMS = [
    CANARY.encode(), CANARY.encode().hex().encode(),
    *(base64.b64encode(b"x" * shift + CANARY.encode() * 3)[8:32] for shift in range(3)),
]  # fmt: skip
"""The canary as text, as hexadecimal digits and, at each offset, as base64."""


@dataclass
class Line:
    """One line of an order."""

    sku: str
    note: str = CANARY


@dataclass
class Order:
    """What is ordered."""

    id: str
    card: str = CANARY
    lines: list[Line] = field(default_factory=lambda: [Line("a"), Line("b")])


@dataclass
class Hold:
    """What the stock keeps."""

    name: str
    order: Order


class EncodedShop:
    """The app. ``calls``: what its functions were called with; ``faults``: what the action of this name raises next."""

    def __init__(self, codec: Codec | None) -> None:
        self.app = app = mg.App("shop", codec=codec)
        self.calls: list[tuple[str, Any]] = []
        self.faults: dict[str, BaseException] = {}
        stock = app.agent("stock")
        self.approval = app.signal("approval", Line)
        self.verdict = app.signal("verdict", str, readable=True)
        retry, recover = mg.Retry(tries=1), mg.Recover(threshold=0, wait="10ms", extended="10ms")

        def called(name: str, value: Any) -> None:
            self.calls.append((name, value))
            if (fault := self.faults.pop(name, None)) is not None:
                raise fault

        @stock.action(complete_within="20s", retry=retry, recover=recover)
        async def reserve(order: Order, card: str) -> Hold:
            mg.current_call().note(f"reserving {CANARY}")
            called("reserve", (order, card))
            return Hold(f"hold {CANARY}", order)

        @reserve.undo
        async def release(order: Order, *, result: Hold | None) -> None:
            called("release", (order, result))

        @reserve.probe
        async def reserved(order: Order, card: str) -> mg.Happened[Hold] | mg.NotHappened:
            called("reserved", (order, card))
            return mg.Happened(Hold(f"found {CANARY}", order))

        @stock.action(complete_within="20s", undo=mg.NOTHING, readable=True)
        def names(hold: Hold) -> list[str]:
            called("names", hold)
            return ["x", "y"]

        @stock.action(complete_within="20s", undo=mg.NOTHING)
        def pick(name: str, order: Order, first: str) -> Line:
            called("pick", (name, order, first))
            mg.current_call().note({"text": CANARY, "first": first})
            return Line(name, f"{first} {CANARY}")

        @stock.action(complete_within="20s", undo=mg.NOTHING)
        def weigh(line: Line, note: str) -> str:
            called("weigh", (line, note))
            return f"{line.sku}: {note}"

        @stock.action(complete_within="20s", undo=mg.NOTHING, readable=True)
        def is_dear(hold: Hold, line: Line) -> bool:
            called("is_dear", (hold, line))
            return hold.order.id != "cheap"

        @stock.action(complete_within="20s", undo=mg.NOTHING, retry=retry, recover=recover)
        def send(notes: list[str], picks: Any, answer: Line) -> str:
            called("send", (notes, picks, answer))
            return f"sent {CANARY}"

        self._note = called
        self.actions = reserve, names, pick, weigh, is_dear, send
        self._declare_workflows()

    def _declare_workflows(self) -> None:
        app, note = self.app, self._note
        reserve, names, pick, weigh, is_dear, send = self.actions

        @app.workflow
        def place(order: Order) -> dict[str, Any]:
            hold = reserve(order, order.card)

            def item(name: Any) -> Any:
                line = pick(name, hold.order, hold.order.lines[0].note)
                return {"line": line, "weight": weigh(line, line.note)}

            picks = mg.each(names(hold), item)
            answer = mg.when(
                is_dear(hold, order.lines[0]),
                then=lambda: mg.wait_for(self.approval),
                otherwise=lambda: Line("none", order.card),
            )
            word = mg.wait_for(self.verdict, timeout="1d", otherwise="yes")
            mg.when(word == "no", then=lambda: mg.fail(f"the boss says no to {order.card}"))
            return {
                "sent": send([order.card, hold.name], picks, answer),
                "first": picks[0],
                "note": answer.note,
            }

        @app.workflow
        def race(order: Order) -> str:
            line = mg.first(
                lambda: pick("x", order, order.card),
                lambda: pick("y", order, mg.wait_for(self.approval).note),
            )
            note = weigh(line, line.note)
            mg.when(is_dear(reserve(order, note), line), then=lambda: mg.done(line.note))
            return note

        @app.workflow
        def ask(order: Order) -> str:
            return weigh(mg.wait_for(self.approval), order.card)

        @app.workflow
        def briefly(order: Order) -> str:
            note: str = reserve(order, order.card).order.lines[1].note
            return note

        @app.workflow
        def at_moment(order: Order, moment: datetime) -> str:
            name: str = reserve(order, order.card).name
            return name

        @app.inbox("orders", retry=mg.Retry(tries=2, wait="10ms", longest="20ms"))
        def accept(order: Order, tx: mg.Transaction) -> mg.Plan[str] | mg.SignalByKey | None:
            note(f"accept {order.id}", order)
            if order.id == "signal":
                return self.approval.of(place, key="o-1", value=order.lines[0])
            return briefly.plan(order).with_(key=order.id)

        self.place, self.briefly, self.at_moment, self.race, self.ask = place, briefly, at_moment, race, ask


async def dump(world: World) -> str:
    """Return every column of every row of every table as text."""
    async with world.raw() as raw:
        if world.dialect == "sqlite":
            tables = [
                name for (name,) in await raw.run("select name from sqlite_master where type = 'table'")
            ]
            rows = [row for name in tables for row in await raw.run(f'select * from "{name}"')]
        else:
            names = await raw.run(
                "select table_name from information_schema.tables where table_schema = 'makegood'"
            )
            rows = [
                [
                    re.sub(
                        r"\\+x([0-9a-f]+)",
                        lambda octets: bytes.fromhex(octets[1]).decode(errors="replace"),
                        text,
                    )
                ]
                for (name,) in names
                for (text,) in await raw.run(f'select t::text from makegood."{name}" t')
            ]
    return "\n".join(
        " ".join(value.decode(errors="replace") if isinstance(value, bytes) else str(value) for value in row)
        for row in rows
    )


def refuse_canary(text: str, subject: str) -> None:
    """Fail if a text has the canary in any form."""
    data = text.encode(errors="replace")
    for form in FORMS:
        if (at := data.find(form)) >= 0:
            raise AssertionError(f"{subject} holds {form!r}: …{data[max(0, at - 200) : at + 60]!r}")


def envelopes(text: str) -> set[str]:
    """Return the envelopes in a text."""
    return set(re.findall(r"mg1:[A-Za-z0-9_=-]{8,}", text))
