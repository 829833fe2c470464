"""Consoles to try things on: a store with a task in error, users of each role, and browsers that are logged in."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import makegood as mg
from makegood.console.app import ConsoleApp, create_app
from makegood.console.users import User
from makegood.console.visits import Route
from makegood.store import open_store
from tests.console.asking import Browser

HASH = "scrypt:14:8:1:AAAAAAAAAAAAAAAAAAAAAA:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
"""Well-formed, and of no password that anybody knows."""
USERS = {
    "vera": User("vera", "viewer", HASH),
    "otto": User("otto", "operator", HASH),
    "ada": User("ada", "admin", HASH),
}
shop = mg.App("shop")
payments = shop.agent("payments")


@payments.action(complete_within="30s", retry=mg.Retry(tries=1))
def charge(order: dict[str, Any]) -> str:
    """Refuse every card."""
    raise mg.Permanent(f"the card of {order['id']} has expired")


@charge.undo
def refund(order: dict[str, Any], *, result: str | None) -> None:
    """Give the money back."""


@shop.workflow(complete_within="2h", on_failure="hold")
def place_order(order: dict[str, Any]) -> str:
    """Charge an order."""
    return charge(order)


@dataclass
class Console:
    """A console, and browsers at it."""

    app: ConsoleApp
    url: str

    def browser(self, user: str = "", **more: Any) -> Browser:
        """Return a browser; ``user`` is logged in."""
        browser = Browser(self.app, **more)
        if user:
            browser.cookies["makegood_login"] = self.app.access.cookie(user)
        return browser

    def token(self, browser: Browser) -> str:
        """Return the token that the forms of this login carry."""
        login = self.app.access.logins.read(browser.cookies["makegood_login"], self.app.access._proof)
        assert login is not None
        return self.app.access.logins.token(login.nonce)

    @property
    def writes(self) -> list[Route]:
        """The routes that may change anything, but for those of the login itself."""
        return [route for route in self.app.routes if route.writes and route.kind != "login"]


def path_of(route: Route, task: str = "0000000000000") -> str:
    """Return a path that a route answers."""
    return (
        re.sub(r"{(id|task|alert)}", task, route.path)
        .replace("{hash}", "0" * 16)
        .replace("{file:path}", "style.css")
    )


async def migrated(folder: Path) -> str:
    """Return the URL of a new store."""
    url = f"sqlite:///{folder}/console.db"
    store = open_store(url)
    await store.open(migrate=True)
    await store.close()
    return url


@asynccontextmanager
async def a_console(folder: Path, **options: Any) -> AsyncIterator[Console]:
    """Open a console with users of each role on a store of its own."""
    url = await migrated(folder)
    async with create_app(url, **({"users": USERS} | options)) as app:
        yield Console(app, url)
