"""No part of a password that is in a URL reaches a terminal, a log or an error, however the URL is misspelt and wherever it is given."""

import asyncio
import logging
import os
import socket
import traceback
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click.testing
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

import makegood as mg
from makegood.cli import main
from makegood.cli.settings import load
from makegood.election import open_leases
from makegood.errors import MakegoodError
from makegood.messaging.outbox import open_outbox
from tests.doors.conftest import HERE

LETTERS = "QXZJVKWY"
"""Of these the passwords are made: four of them in a row are in no text of ours."""
ODD = "/?#@:%&=;,+ []<>\"'\\$!`|~^\N{ACCOUNT OF}\N{FULLWIDTH COLON}\u00e9\u200b\t"

chunks = st.text(LETTERS, min_size=5, max_size=8)
passwords = st.builds(
    lambda first, rest: first + "".join(odd + chunk for odd, chunk in rest),
    chunks,
    st.lists(st.tuples(st.sampled_from(ODD), chunks), max_size=2),
)
schemes = st.sampled_from(
    (
        "postgresql", "postgres", "POSTGRESQL", "postgresql+asyncpg", "postgressql", "mysql", "redis", "rediss", "etcd",
        "etcd+https", "zookeeper", "nats", "tls", "azure-blob", "kubernetes", "memory", "sqlite", "https", "",
    )
)  # fmt: skip
forms = st.sampled_from(
    (
        "{s}://shop:{p}@127.0.0.1:1/shop",
        "{s}://shop:{p}@127.0.0.1:1,127.0.0.1:1/shop",
        "{s}://:{p}@127.0.0.1:1/0",
        "{s}://shop:{p}@127.0.0.1:1",
        "{s}://shop:{p}@127.0.0.1:x/shop",
        "{s}://shop:{p}@127.0.0.1:1/shop?x=1",
        "{s}://shop:{p}@[::1/shop",
        "{s}://shop:{p}@:1/shop",
        "{s}://127.0.0.1:1/shop?user=shop&password={p}",
        "{s}://127.0.0.1:1/shop?password={p}&user=shop",
        "{s}://127.0.0.1:1/shop?Password={p}",
        "{s}://127.0.0.1:1/shop?user=shop&sslpassword={p}&sslmode=disable",
        "{s}://127.0.0.1:1/0?token={p}",
        "{s}://127.0.0.1:1/0?sig={p}",
        "{s}://shop:{p}/shop",
        "{s}://shop:{p}",
        "{s}:///shop:{p}@127.0.0.1/shop",
        "{s}:/shop:{p}@127.0.0.1/shop",
        "{s}:shop:{p}@127.0.0.1/shop",
        "{s}//shop:{p}@127.0.0.1/shop",
        "shop:{p}@127.0.0.1/shop",
        " {s}://shop:{p}@127.0.0.1:1/shop",
    )
)


@st.composite
def given_urls(draw: st.DrawFn) -> tuple[str, str]:
    """Return a URL and the password in it, percent-encoded or as it is."""
    password = draw(passwords)
    secret = quote(password, safe="") if draw(st.booleans()) else password
    url = draw(forms).format(s=draw(schemes), p=secret)
    # After three slashes SQLite's is a file's name, and a bare @ in a password makes a host of what follows it.
    assume(
        not url.strip().startswith("sqlite:///")
        and not ("@" in secret and "@127" not in url and "?" not in url)
    )
    return url, password


def leaked(password: str, *texts: str) -> str:
    """Return a part of a password that is in one of the texts: four letters of it in a row, in capitals or not; "" for none."""
    parts = {password[at : at + 4].casefold() for at in range(len(password) - 3)}
    parts |= {
        part.casefold() for at in range(len(password) - 3) if (part := quote(password[at : at + 4], safe=""))
    }
    for text in texts:
        low = text.casefold()
        for part in parts:
            if part in low:
                return f"{part!r} in {text!r}"
    return ""


@pytest.fixture(autouse=True)
def at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """No name is looked up: the part of a password that a URL gives out as its host leaves this machine otherwise."""
    real = socket.getaddrinfo

    def local(host: Any, *rest: Any, **more: Any) -> Any:
        if host not in ("127.0.0.1", "localhost", "::1", None):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", local)


@contextmanager
def logged() -> Iterator[list[str]]:
    """Collect what is logged meanwhile by whomever, at every level."""
    lines: list[str] = []

    class Collecting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    root, collecting = logging.getLogger(), Collecting()
    before = root.level
    root.addHandler(collecting)
    root.setLevel(1)
    try:
        yield lines
    finally:
        root.removeHandler(collecting)
        root.setLevel(before)


COMMANDS: tuple[tuple[str, ...], ...] = (
    ("doctor",), ("doctor", "--json"), ("store", "status"), ("store", "migrate"), ("store", "migrate", "--sql"),
    ("store", "check", "--json"), ("store", "prune"), ("store", "restored"), ("task", "list"), ("task", "show", "0000000000000"),
    ("task", "history", "0000000000000"), ("task", "submit", "kiosk:buy", '{"id": "p"}'),
    ("task", "cancel", "0000000000000", "--reason", "x"), ("task", "undo", "--preview", "0000000000000"), ("queue", "list"),
    ("queue", "send", "q", "1"), ("queue", "receive", "q"), ("notices", "list"), ("agents",), ("leader",),
    ("leader", "reports"), ("leader", "reports", "--past"), ("alerts",), ("alerts", "--test"), ("audit",), ("check", "kiosk:kiosk"),
    ("run", "kiosk:kiosk"), ("scheduler",), ("scheduler", "--log-format", "json"), ("agent", "kiosk:kiosk", "till"), ("supervisor",),
    ("supervisor", "--once"), ("inbox", "kiosk:kiosk"), ("election", "run", "reports", "--wait", "0.2s", "--", "true"),
)  # fmt: skip

DOORS = ("flag", "environment", "file", "outbox", "stray", "pyproject", "list")


def through(door: str, words: Sequence[str], url: str, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Return the words and the environment of a command that is given ``url`` in this way, having written a file if need be."""
    own, project = folder / "makegood.toml", folder / "pyproject.toml"
    for file in (own, project):
        file.unlink(missing_ok=True)
    text = '"' + "".join(f"\\u{ord(letter):04x}" for letter in url) + '"'
    split = [*words].index("--") if "--" in words else len(words)
    if door == "flag":
        return [*words[:split], "--store", url, *words[split:]], {}
    if door == "environment":
        return [*words], {"MAKEGOOD_STORE": url}
    if door == "outbox":
        return ["inbox", "--from", url], {"MAKEGOOD_STORE": f"sqlite:///{folder}/none.db"}
    if door == "stray":
        return [*words[:split], url, *words[split:]], {"MAKEGOOD_STORE": f"sqlite:///{folder}/none.db"}
    if door == "pyproject":
        project.write_text(f"[tool.makegood]\nstore = {text}\n", encoding="utf-8")
    else:
        own.write_text(f"store = {text if door == 'file' else f'[{text}]'}\n", encoding="utf-8")
    return [*words], {}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the shop's module, and nothing of makegood's in the environment."""
    (tmp_path / "kiosk.py").write_text((HERE / "cli_app.py").read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for name in [*os.environ]:
        if name.startswith(("MAKEGOOD_", "PG", "KUBERNETES_", "AZURE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AZURE_STORAGE_KEY", "bm9uZQ==")
    return tmp_path


RANDOM = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def of_stray_word(password: str) -> Callable[[Any], Any]:
    """Try a URL with this password where a command expects a filter."""
    url = f"postgresql://shop:{password}@127.0.0.1:1/shop"
    return example(secret=(url, password), words=("task", "list"), door="stray", debug=False)


@RANDOM
@given(
    secret=given_urls(),
    words=st.sampled_from(COMMANDS),
    door=st.sampled_from(DOORS),
    debug=st.booleans(),
)
@of_stray_word("JJJJJ\\JJJJJ")  # a filter leaves out what quotes, and splits at spaces
@of_stray_word("JJJJ'KKKK'")
@of_stray_word("JJJJ KKKK")
def test_no_command_shows_a_part_of_a_password(
    folder: Path, secret: tuple[str, str], words: tuple[str, ...], door: str, debug: bool
) -> None:
    """Whatever the command, wherever the URL was given, with a traceback or without."""
    url, password = secret
    arguments, environ = through(door, words, url, folder)
    runner = click.testing.CliRunner(env=environ)
    with logged() as lines:
        result = runner.invoke(main, ["--debug", *arguments] if debug else arguments)
    assert result.exit_code != 0 or "memory:" in url, (arguments, result.output)
    found_in = leaked(password, result.stdout, result.stderr, *lines)
    assert not found_in, (arguments, environ, found_in)


def raised(error: BaseException) -> tuple[str, ...]:
    """Return all that is printed of an error."""
    return str(error), repr(error), "".join(traceback.format_exception(error))


async def opened_client(url: str) -> None:
    async with mg.Client(url):
        pass


async def started_node(url: str) -> None:
    async with mg.Node(None, url, roles=("scheduler",)):
        pass


async def read_lease(url: str) -> None:
    async with open_leases(url, timeout=0.3) as leases:
        await leases.read("reports")


async def opened_outbox(url: str) -> None:
    outbox = open_outbox(url)
    try:
        await outbox.open()
    finally:
        await outbox.close()


async def relaying_node(url: str) -> None:
    async with mg.Node(None, "sqlite:///relay.db", roles=(), outbox=url):
        pass


async def loaded_settings(url: str) -> None:
    options = load({}, {"MAKEGOOD_STORE": url}, Path("/nowhere"))
    await opened_client(options.store)


async def alert_webhook(url: str) -> None:
    mg.Options(alert_webhook=url)
    load({}, {"MAKEGOOD_ALERT_WEBHOOK": url}, Path("/nowhere"))


@RANDOM
@given(
    secret=given_urls(),
    door=st.sampled_from(
        (
            opened_client,
            started_node,
            read_lease,
            opened_outbox,
            relaying_node,
            loaded_settings,
            alert_webhook,
        )
    ),
)
def test_no_error_shows_a_part_of_a_password(
    folder: Path, secret: tuple[str, str], door: Callable[[str], Awaitable[None]]
) -> None:
    """Neither its text nor the errors behind it, as a traceback prints them, nor any library's log at any level."""
    url, password = secret
    texts: tuple[str, ...] = ()
    with logged() as lines:
        try:
            asyncio.run(door(url))  # type: ignore[arg-type]  # each is a coroutine function
        except MakegoodError as error:
            texts = raised(error)
    found_in = leaked(password, *texts, *lines)
    assert not found_in, (url, found_in)
