"""What cannot be meant is refused at once, in one sentence that says what to do; and who only looks writes nothing."""

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import click.testing
import pytest

from makegood.cli import main
from makegood.election import Election, open_leases
from makegood.election.preference import Bully, TcpTransport
from makegood.election.stores.memory import MemoryLeases
from makegood.errors import ConfigError, StoreUnavailableError
from tests.election.virtual import Leases, election, virtual, wait
from tests.forbidden_folder import barred

GROUP = {"h1": "127.0.0.1:18501", "h2": "127.0.0.1:18502"}


def call(folder: Path, *words: str, store: str = "leases.db") -> click.testing.Result:
    """Run a command in this process."""
    url = store if ":" in store else f"sqlite:///{folder / store}"
    return click.testing.CliRunner(env={"MAKEGOOD_STORE": url}).invoke(main, list(words))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("ec", "--keep-laese", "2m", "--", "true"), "--keep-lease"),
        (("--jsn", "nd4", "--", "true"), "--json"),
        (("x", "sh", "-c", "true"), "write `--` before COMMAND"),
        (("--", "true", "x"), "write NAME before `--`"),
        (("x", "y", "--", "true"), "write NAME before `--`"),
        (("x", "--ttl", "0s", "--", "true"), "--ttl='0s' must be a finite duration of at least 0.1 s"),
        (
            ("x", "--ttl", "15s", "--wind-down", "8s", "--", "true"),
            "--wind-down 8s is too long for --ttl 15s",
        ),
        (("x", "--store", "memory:", "--", "true"), "excludes nobody"),
    ],
)
def test_election_run_is_told_wrongly(tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    """Nothing runs, no lease is taken, the exit code is that of a wrong usage."""
    result = call(tmp_path, "election", "run", *words)
    assert (result.exit_code, says in " ".join(result.stderr.split())) == (2, True), result.stderr
    assert not (tmp_path / "leases.db").exists()


def test_past_and_watch_together_are_a_wrong_usage(tmp_path: Path) -> None:
    result = call(tmp_path, "leader", "x", "--past", "--watch")
    assert (result.exit_code, "one of --past, --watch and --step-down" in result.stderr) == (2, True)


def test_past_terms_of_an_election_that_never_was(tmp_path: Path, database: str) -> None:
    """On every store that there always is; and nothing is made by looking."""
    assert call(tmp_path, "election", "run", "other", "--", "true").exit_code == 0
    for store in ("leases.db", database):
        result = call(tmp_path, "leader", "never", "--past", store=store)
        assert (result.exit_code, result.stderr.strip()) == (0, "nobody ever led")
        assert call(tmp_path, "leader", "never", "--past", "--json", store=store).stdout.strip() == "[]"
        assert "nobody leads" in call(tmp_path, "leader", "never", store=store).output


async def test_history_of_no_terms() -> None:
    candidate = Election("lead", MemoryLeases())
    assert await candidate.history() == []
    assert await candidate.history(0) == []
    with pytest.raises(ConfigError, match="number of terms"):
        await candidate.history(-1)


def test_who_only_looks_makes_no_file_and_no_table(tmp_path: Path, database: str) -> None:
    result = call(tmp_path, "leader", "x", store="typo.db")
    assert (result.exit_code, "typo.db does not exist" in result.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "empty.db").touch()
    assert call(tmp_path, "leader", "x", store="empty.db").exit_code == 0
    assert (tmp_path / "empty.db").stat().st_size == 0
    assert call(tmp_path, "leader", "x", store=database).exit_code == 0

    async def schemas() -> Any:
        connection = await asyncpg.connect(database)
        try:
            return await connection.fetchval("select to_regnamespace('makegood_election') is null")
        finally:
            await connection.close()

    assert asyncio.run(schemas())


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("sqlite:///a.db?timeot=4", "no parameter 'timeot': .* it takes no parameter"),
        ("redis://127.0.0.1:6379/0?replcas=4", "no parameter 'replcas': .* it takes db"),
        ("redis://127.0.0.1:6379/notanumber", "'notanumber' is not the number"),
        ("nats://127.0.0.1:4222/b?replcas=4", "it takes replicas, creds"),
        ("postgresql://[::1/shop", "the URL of the leases cannot be read: percent-encode"),
        ("zookeeper://:2181/x", "a host is missing: write zookeeper://"),
        ("zookeeper://u:p@a:2181,:2182/x", "a host is missing"),
        ("etcd://a:2379,", "a host is missing: write etcd://"),
        ("nats://:4222/b", "a host is missing: write nats://"),
        (None, "must be a text"),
    ],
)
def test_a_url_with_what_its_store_does_not_know(url: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        open_leases(url)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Election("x", "sqlite:///x.db"), "pass what open_leases"),  # type: ignore[arg-type]
        (lambda: Election("x", None), "pass what open_leases"),  # type: ignore[arg-type]
        (lambda: Election("x", MemoryLeases(), health="yes"), "pass a function"),  # type: ignore[arg-type]
        (lambda: Bully("x"), "is not a transport"),  # type: ignore[arg-type]
        (lambda: Election("x", MemoryLeases(), preference=Bully), "pass an object"),  # type: ignore[arg-type]
        (
            lambda: Election("x", MemoryLeases(), me="h2", preference=Bully(TcpTransport("h1", GROUP))),
            "is 'h1''s",
        ),
    ],
)
def test_an_election_of_what_it_is_not(make: Callable[[], object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make()


def test_a_candidate_with_a_preference_bears_its_name() -> None:
    assert Election("x", MemoryLeases(), preference=Bully(TcpTransport("h1", GROUP))).me == "h1"


@virtual
async def test_a_candidate_contends_once_at_a_time() -> None:
    candidate = election(Leases())
    terms = candidate.terms()
    async with await anext(terms):
        with pytest.raises(ConfigError, match="contends for 'lead' already"):
            await anext(candidate.terms())
    await terms.aclose()
    terms = candidate.terms()
    assert (await anext(terms)).epoch == 2
    await terms.aclose()


@virtual
async def test_watching_tells_of_an_outage_once_and_of_its_end() -> None:
    leases = Leases()

    class Away(Leases):
        async def read(self, name: str) -> Any:
            if self.away:
                raise StoreUnavailableError("away")
            return await super().read(name)

    leases = Away()
    leases.away = True
    views = election(leases).watch(every=1)
    with told() as messages:
        going = asyncio.ensure_future(anext(views))
        await wait(10)
        leases.away = False
        assert (await going).leader is None
    assert messages == ["who leads 'lead' cannot be seen now: away", "who leads 'lead' can be seen again"]


@contextlib.contextmanager
def told() -> Any:
    """Collect what is logged as a warning, or worse."""
    messages: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("makegood.election")
    log.addHandler(handler)
    try:
        yield messages
    finally:
        log.removeHandler(handler)


async def test_a_file_that_is_removed_under_its_leader_ends_the_term(tmp_path: Path) -> None:
    """It would renew where nobody looks, while another one leads in a new file, in the same epoch."""
    path = tmp_path / "leases.db"
    async with open_leases(f"sqlite:///{path}") as leases:
        grant = await leases.acquire("lead", "a", "one", 15)
        assert grant is not None
        assert await leases.renew(grant)
        for file in list(tmp_path.iterdir()):  # noqa: ASYNC240 - nobody else waits on this loop
            file.unlink()
        assert not await leases.renew(grant)
        with pytest.raises(StoreUnavailableError, match="was removed or replaced"):
            await leases.acquire("lead", "a", "two", 15)
        path.touch()
        assert not await leases.renew(grant)
        await leases.close()
        with pytest.raises(StoreUnavailableError, match="was removed or replaced"):
            await leases.acquire("lead", "a", "three", 15)
        assert path.stat().st_size == 0


@pytest.mark.parametrize("name", ["..", "a/../b", "./a", "a//b", "a.", "/a", "a/"])
async def test_azure_is_not_asked_for_a_name_that_means_another_place(name: str) -> None:
    """An HTTP client takes "a/../b" for "b", another election or even another container."""
    pytest.importorskip("azure.storage.blob")
    async with open_leases("azure-blob://devstoreaccount1@127.0.0.1:1/leases") as leases:
        with pytest.raises(ConfigError, match="is not a name for a blob"):
            await leases.acquire(name, "a", "nonce", 15)
        with pytest.raises(ConfigError, match="is not a name for a blob"):
            await leases.read(name)


async def test_a_folder_that_this_user_may_not_enter_is_named(open_folder: Path) -> None:
    """Who wanted to lead met the system's own error; who only looked was told. One that is barred later makes the leases unavailable."""
    folder = open_folder / "mine"
    folder.mkdir()
    folder.chmod(0o777)
    leases = open_leases(f"sqlite:///{folder / 'leases.db'}")
    with barred(folder):
        for call in (leases.acquire("e", "a", "n", 10.0), leases.read("e")):
            with pytest.raises(ConfigError, match="may not enter the folder"):
                await call
    grant = await leases.acquire("e", "a", "n", 10.0)
    assert grant is not None
    with barred(folder), pytest.raises(StoreUnavailableError, match="cannot be reached"):
        await leases.renew(grant)
    assert await leases.renew(grant)
    await leases.close()


def test_wait_ends_in_time_though_the_store_is_a_black_hole(tmp_path: Path) -> None:
    """A second later at most, give or take a busy machine, whatever the ttl: nobody waits for what is unanswered."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        for scheme in ("postgresql://x@127.0.0.1:%d/x", "redis://127.0.0.1:%d/0"):
            url = scheme % deaf.getsockname()[1]
            start = time.monotonic()
            result = call(
                tmp_path, "election", "run", "x", "--wait", "1s", "--ttl", "60s", "--", "true", store=url
            )
            assert (result.exit_code, time.monotonic() - start < 30) == (8, True), result.output
