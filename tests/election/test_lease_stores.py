"""The lease stores pass the public suite; and the suite finds what is wrong in a store that is wrong."""

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import makegood
from makegood.election import OpenLeases, open_leases
from makegood.election.open import KINDS
from makegood.election.stores import azure, etcd, kubernetes, memory, nats, postgres, redis, sqlite, zookeeper
from makegood.errors import ConfigError, StoreUnavailableError
from makegood.testing.leases import LEASE_STORE_CASES, LeaseCase, LeaseWorld
from proofs.servers import LeaseServer, ServerKind
from tests.election.server_worlds import (
    AzureWorld,
    EtcdWorld,
    NatsWorld,
    ObservedWorld,
    RedisWorld,
    ServerWorld,
)
from tests.election.worlds import MemoryWorld, PostgresWorld, SQLiteWorld
from tests.guarded_merges import MergeRecord, recorded_merges, short_logs

OPENERS: list[Callable[..., OpenLeases]] = [
    memory.from_url,
    azure.from_url,
    zookeeper.from_url,
    etcd.from_url,
    kubernetes.from_url,
    nats.from_url,
    sqlite.from_url,
    postgres.from_url,
    redis.from_url,
]
"""Each returns a lease store, for the type checker too."""


SERVERS: dict[ServerKind, type[ServerWorld]] = {
    "redis": RedisWorld,
    "nats": NatsWorld,
    "azurite": AzureWorld,
    "zookeeper": ObservedWorld,
}


@pytest.fixture(params=["memory", "sqlite", "postgres", *SERVERS])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> LeaseWorld:
    """A place of each kind."""
    if request.param == "memory":
        return MemoryWorld()
    if request.param == "sqlite":
        return SQLiteWorld(tmp_path)
    if request.param in SERVERS:
        return SERVERS[request.param](request.getfixturevalue("lease_server")(request.param))
    return PostgresWorld(request.getfixturevalue("shared_database"))


@pytest.fixture(autouse=True)
def merges() -> Iterator[MergeRecord]:
    """What makegood does with the logs of SQLite files, which are merged at every chance."""
    with short_logs(), recorded_merges() as record:
        yield record


@pytest.mark.parametrize("case", LEASE_STORE_CASES, ids=str)
async def test_the_suite(case: LeaseCase, world: LeaseWorld) -> None:
    """Each store does what an election relies on."""
    async with world.ready() if isinstance(world, ServerWorld) else contextlib.nullcontext():
        why = await case.prove(world)
    reasons = {"no server to restart", "no connections to break", "no way to let bytes vanish"}
    assert not why or why in reasons


@pytest.fixture(params=["sqlite", "postgres"])
def shared_place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/l.db"
    url: str = request.getfixturevalue("shared_database")
    return url


async def test_an_epoch_does_not_return_after_somebody_deleted_the_row(
    shared_place: str, tmp_path: Path
) -> None:
    """The terms of the lease outlive its row."""
    is_file = shared_place.startswith("sqlite")
    epochs = []
    for holder in ("a", "b", "c"):
        async with open_leases(shared_place) as leases:
            if holder == "c" and is_file:
                with contextlib.closing(sqlite3.connect(tmp_path / "l.db")) as file, file:
                    file.execute("delete from makegood_election_lease")
            elif holder == "c":
                await PostgresWorld(shared_place).run(
                    "delete from makegood_election.lease where name = 'rowless'"
                )
            grant = await leases.acquire("rowless", holder, holder, 15)
            assert grant is not None
            await leases.release(grant)
            epochs.append(grant.epoch)
    assert epochs == [1, 2, 3]


async def test_the_suite_on_etcd(lease_server: Callable[[ServerKind], LeaseServer]) -> None:
    """The clock of etcd cannot be set, so the cases wait for it at the same time; but for the restart, which comes last.

    A case that failed while the machine was too busy to keep its times says nothing of etcd: it is tried again, alone.
    """
    server = lease_server("etcd")

    async def proved(case: LeaseCase) -> str:
        """Return why it failed, "" when it did not, "late" when it was too slow to tell."""
        world = EtcdWorld(server)
        try:
            async with world.ready():
                return await case.prove(world)
        except (AssertionError, StoreUnavailableError) as wrong:
            return "late" if world.late() > world.ttl / 5 else f"{case}: {wrong}"

    *cases, restart = sorted(LEASE_STORE_CASES, key=lambda case: "restart" in case.name)
    assert "restart" in restart.name
    outcomes = dict(zip(cases, await asyncio.gather(*map(proved, cases)), strict=True))
    for _ in range(5):
        for case in [case for case, outcome in outcomes.items() if outcome == "late"]:
            outcomes[case] = await proved(case)
    assert not any(outcomes.values()), "\n".join(filter(None, outcomes.values()))
    assert not await proved(restart)


def test_every_module_of_a_scheme_opens_by_url() -> None:
    modules = {opener.__module__.rpartition(".")[2] for opener in OPENERS}
    assert modules == {kind.module for kind in KINDS.values()}


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("orders.db", "names no lease store"),
        ("mysql://host/db", "sqlite:///file.db"),
        ("sqlite://orders.db", "sqlite:////var/lib"),
    ],
)
def test_a_url_that_names_no_store_is_refused_with_what_to_write(url: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        open_leases(url)


WITH_EXTRA = {kind.extra: kind for kind in KINDS.values() if kind.extra}


@pytest.mark.parametrize("extra", WITH_EXTRA)
def test_a_client_that_is_not_installed_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, extra: str
) -> None:
    kind = WITH_EXTRA[extra]
    for module in [module for module in sys.modules if (module + ".").startswith(kind.package + ".")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, kind.package, None)
    for module in [module for module in sys.modules if module.startswith("makegood.election.stores.")]:
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(ConfigError, match=rf"need {kind.package}: install makegood with its extra '{extra}'"):
        open_leases(kind.form)


def test_each_extra_is_one_of_the_project_and_brings_its_client() -> None:
    """What the message tells people to install is there, and `makegood[leases]` brings them all but PostgreSQL's."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    assert set(WITH_EXTRA) <= set(extras)
    together = extras["leases"][0].partition("[")[2].rstrip("]").split(",")
    assert sorted(together) == sorted(set(WITH_EXTRA) - {"postgres"})


def test_an_election_needs_the_ground_floor_only() -> None:
    """With nothing of makegood but a bare package around it, it loads a few modules, and no client that is not used."""
    code = (
        "import sys, types; bare = types.ModuleType('makegood'); bare.__path__ = [sys.argv[1]]; sys.modules['makegood'] = bare;"
        "from makegood.election import Election, open_leases; open_leases('memory:');"
        "print(*sorted(m for m in sys.modules if m.startswith('makegood') or m in sys.argv[2:]))"
    )
    package = str(Path(makegood.__file__).parent)
    clients = ["msgspec", "rich", "click", *(kind.package for kind in KINDS.values() if kind.package)]
    assert {"asyncpg", "redis", "nats", "azure.storage.blob", "httpx2", "kazoo"} <= set(clients)
    ran = subprocess.run(
        [sys.executable, "-c", code, package, *clients], capture_output=True, text=True, check=True
    )
    modules = set(ran.stdout.split())
    allowlist = {
        "makegood",
        *(
            f"makegood.{n}"
            for n in (
                "base",
                "base.loop_thread",
                "base.clock",
                "base.contexts",
                "base.accepted_connections",
                "base.cancelling",
                "base.arguments",
                "base.did_you_mean",
                "base.secret_names",
                "base.durations",
                "base.extras",
                "base.host_port",
                "base.public_networks",
                "base.scrubbed_tracebacks",
                "errors",
                "base.ids",
                "base.lazy",
                "base.private_files",
                "base.sparse_log",
                "base.text",
                "base.daemon_threads",
                "base.urls",
                "base.wrapped_errors",
                "transactions",
                "transactions.caller",
                "transactions.drivers",
                "transactions.libraries",
                "transactions.recognise",
            )
        ),
    }
    assert {m for m in modules if not m.startswith("makegood.election")} <= allowlist
    assert "makegood.election.stores.sqlite" not in modules


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("this is no database, but long enough to be looked at as one\n" * 20)
    async with open_leases(f"sqlite:///{tmp_path / 'text.db'}") as leases:
        with pytest.raises(ConfigError, match="not a SQLite database"):
            await leases.read("x")


async def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    async with open_leases(f"sqlite:///{tmp_path / 'no' / 'leases.db'}") as leases:
        with pytest.raises(ConfigError, match="does not exist"):
            await leases.read("x")


@pytest.mark.parametrize(
    "url", ["memory:", "sqlite:///{}/leases.db", "postgresql://127.0.0.1:1/x", "redis://127.0.0.1:1/0"]
)
@pytest.mark.parametrize("ttl", ["15", "15s", None, True, 0, -1.0, float("nan"), float("inf")])
async def test_a_ttl_that_is_no_number_of_seconds_is_refused_before_anything_is_asked(
    tmp_path: Path, url: str, ttl: Any
) -> None:
    async with open_leases(url.format(tmp_path)) as leases:
        with pytest.raises(
            ConfigError, match="is not the length of a lease: write a number of seconds above 0"
        ):
            await leases.acquire("lead", "a", "nonce", ttl)
