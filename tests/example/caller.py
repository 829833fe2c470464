"""A caller of the remote services for tests: what ``mg.current_call()`` is to an action, made by hand."""

import asyncio
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.orders import remote


@dataclass(frozen=True)
class Caller:
    """One call: its key and whatever else travels in the headers; ``left`` is what ``remaining()`` says."""

    key: str = ""
    token: str = ""
    scope: str = ""
    undoes: str = ""
    left: float = 10.0

    @property
    def headers(self) -> Mapping[str, str]:
        headers = {
            "Idempotency-Key": self.key,
            "Makegood-Token": self.token,
            "Makegood-Scope": self.scope,
            "Makegood-Undoes": self.undoes,
        }
        return {name: value for name, value in headers.items() if value}

    def remaining(self) -> float:
        return self.left

    def ask(self, place: str, order: str = "o-1", **facts: Any) -> remote.Answer:
        """Ask as a ``def`` action does."""
        return remote.ask(self, place, {"order_id": order, "sku": "pen", "cents": 500, **facts})

    def ask_async(self, place: str, order: str = "o-1", **facts: Any) -> remote.Answer:
        """Ask as an ``async def`` action does."""
        return asyncio.run(
            remote.ask_async(self, place, {"order_id": order, "sku": "pen", "cents": 500, **facts})
        )


def said(caller: Caller, place: str, **facts: Any) -> str:
    """Ask, and say in a word how it ended: "done" or the name of what was raised."""
    try:
        caller.ask(place, **facts)
    except remote.RemoteError as error:
        return type(error).__name__
    return "done"


def entries(books: Path) -> list[tuple[str, int, str, str]]:
    """The books' lines: effect, change, key, order, oldest first."""
    with closing(sqlite3.connect(books)) as db:
        return db.execute("SELECT effect, change, key, order_id FROM entry ORDER BY id").fetchall()
