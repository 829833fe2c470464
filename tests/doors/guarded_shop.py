"""A shop on PostgreSQL with a role for each kind of process, for the tests of what these roles may do."""

import asyncio
import base64
import json
import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from makegood.errors import MakegoodError
from tests.doors.conftest import Shop

asyncpg = pytest.importorskip("asyncpg", reason="postgres: asyncpg is not installed")

PASSWORD = "only-here"
QUICK = {
    "MAKEGOOD_SUPERVISE_EVERY": "200ms",
    "MAKEGOOD_HEARTBEAT": "200ms",
    "MAKEGOOD_DEAD_AFTER": "3s",
    "MAKEGOOD_LEASE": "3s",
    "MAKEGOOD_ALERTS_EVERY": "300ms",
    "MAKEGOOD_CLEANUP_EVERY": "500ms",
    "MAKEGOOD_WEBHOOK_HOSTS": "hooks.invalid",
    "MAKEGOOD_WEBHOOK_SECRET": "whsec_" + base64.b64encode(bytes(32)).decode(),
    "MAKEGOOD_WEBHOOK_TRIES": "1",
}
AGENTS = ("--agent", "kiosk/stock", "--agent", "kiosk/till")


class Guarded(Shop):
    """A shop on PostgreSQL whose store belongs to an owner's role; ``as_`` gives the store's URL for another role."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder, url)
        self.admin = url
        self.prefix = f"mg{secrets.token_hex(4)}_"

    def as_(self, kind: str) -> str:
        """Return the URL for a role, or for a login that is a member of some."""
        parts = urlsplit(self.admin)
        where = parts.netloc.rpartition("@")[2]
        return urlunsplit(parts._replace(netloc=f"{self.prefix}{kind}:{PASSWORD}@{where}"))

    def sql(self, sql: str, kind: str | None = None, *values: Any) -> list[Any]:
        """Run SQL as the superuser, or as a role."""

        async def run() -> list[Any]:
            connection = await asyncpg.connect(self.admin if kind is None else self.as_(kind))
            try:
                if values or sql.startswith("select") or sql.endswith("returning 1"):
                    return [tuple(row) for row in await connection.fetch(sql, *values)]
                await connection.execute(sql)
                return []
            finally:
                await connection.close()

        return asyncio.run(run())

    def granted(self, *words: str) -> str:
        """Apply what ``store grants`` prints, and let all of its roles log in."""
        sql = self.done("store", "grants", "--prefix", self.prefix, *words, "--store", self.admin)
        self.sql(sql)
        for (name,) in self.sql(
            "select rolname::text from pg_roles where starts_with(rolname::text, $1)", None, self.prefix
        ):
            self.sql(f"alter role \"{name}\" password '{PASSWORD}'")
        return sql

    def may(self, kind: str, *words: str, code: int = 0) -> str:
        """Run a command as a role; returns its output."""
        result = self.call(*words, "--store", self.as_(kind))
        assert result.exit_code == code, (kind, words, result.output)
        return result.output

    def said(self, kind: str, *words: str, code: int = 0) -> Any:
        """Run a command as a role; returns its JSON."""
        result = self.call(*words, "--json", "--store", self.as_(kind))
        assert result.exit_code == code, (kind, words, result.output)
        return json.loads(result.stdout)

    def login(self, name: str, kind: str) -> None:
        """Make a login that is a member of a role."""
        self.sql(
            f'create role "{self.prefix}{name}" login password \'{PASSWORD}\' in role "{self.prefix}{kind}"'
        )

    def role(self, kind: str, *words: str, **settings: str) -> Any:
        """Start a process of a role and wait until it serves; ``settings`` beside ``QUICK``."""
        return self.serve(*words, MAKEGOOD_STORE=self.as_(kind), **{**QUICK, **settings})


@pytest.fixture(scope="module")
def guarded_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A database set up as the page says: the owner's role, the migration as the owner, all other roles; twice, as it can be repeated."""
    from tests.conformance import postgres  # noqa: PLC0415 - asyncpg is an extra

    with ExitStack() as stack:
        try:
            databases = stack.enter_context(postgres.databases())
        except MakegoodError as reason:
            pytest.skip(f"postgres: {reason}")
        url = asyncio.run(databases.create())
        new_shop = Guarded(tmp_path_factory.mktemp("guarded"), url)
        new_shop.granted("--role", "owner")
        new_shop.may("owner", "store", "migrate")
        new_shop.granted(*AGENTS)
        new_shop.granted(*AGENTS)
        yield new_shop
        new_shop.close()
        names = [
            name
            for (name,) in new_shop.sql(
                "select rolname::text from pg_roles where starts_with(rolname::text, $1)",
                None,
                new_shop.prefix,
            )
        ]
        for name in names:
            new_shop.sql(f'drop owned by "{name}" cascade')
        asyncio.run(databases.drop(url))
        new_shop.admin = databases.url
        for name in names:
            new_shop.sql(f'drop role "{name}"')
