"""A console without users: its token, asked for over HTTP of a real server in a process of its own."""

import asyncio
import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

import makegood as mg
from makegood.base.loop_thread import Loop
from makegood.console.app import create_app
from makegood.console.options import ConsoleOptions
from makegood.console.server import ConsoleServer
from makegood.console.users import User, hash_password
from tests.actors.conftest import QUIET
from tests.console.consoles import USERS, migrated, shop
from tests.other_users import VISITOR, run_as

GUESS = "x" * 43
PASSWORD = "correct horse battery"
SERVES = ("makegood", "console", "--console", "127.0.0.1:0")


class Got(NamedTuple):
    """An answer."""

    status: int
    headers: Mapping[str, str]
    text: str


class Served(NamedTuple):
    """A console in a process of its own: where it listens, and the address that it printed."""

    address: str
    link: str

    @property
    def token(self) -> str:
        """The token in the printed address."""
        return parse_qs(urlsplit(self.link).query)["token"][0]

    def ask(
        self, path: str, *, method: str = "GET", body: str = "", version: int = 11, **headers: str
    ) -> Got:
        """Send a request, and return the answer; nothing is followed."""
        where = urlsplit(self.address)
        connection = HTTPConnection(where.hostname or "", where.port, timeout=60)
        connection._http_vsn, connection._http_vsn_str = version, f"HTTP/{version / 10:.1f}"  # type: ignore[attr-defined]
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body or None, fields)
        answer = connection.getresponse()
        response = Got(answer.status, {n.lower(): v for n, v in answer.getheaders()}, answer.read().decode())
        connection.close()
        return response


@contextmanager
def served(
    folder: Path, *words: str, state: Path | None = None, toml: str = "", **environ: str
) -> Iterator[Served]:
    """Run ``makegood console`` on the store in a folder, and read the address that it prints to a terminal's stderr."""
    (folder / "makegood.toml").write_text(toml)
    command = [sys.executable, "-m", *SERVES, "--store", f"sqlite:///{folder}/console.db", *words]
    clean = {name: value for name, value in os.environ.items() if name != "JOURNAL_STREAM"}
    own: dict[str, Any] = {"XDG_STATE_HOME": str(state or folder / "state")}
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, cwd=folder, env=clean | own | environ
    ) as process:
        assert process.stderr is not None
        lines: list[str] = []
        while not (match := re.search(r"console of .* on (http://\S+);", lines[-1] if lines else "")):
            lines.append(process.stderr.readline())
            assert lines[-1], lines
        link = urlsplit(match[1])
        try:
            yield Served(f"http://{link.netloc}", match[1])
        finally:
            process.send_signal(signal.SIGTERM)
            (folder / "log").write_text("".join(lines[:-1]) + process.communicate(timeout=60)[1])


@contextmanager
def here(folder: Path, **options: Any) -> Iterator[Served]:
    """Serve a console from this process."""
    own = ConsoleOptions(listen="127.0.0.1:0", **options)
    server, loop = ConsoleServer(f"sqlite:///{folder}/console.db", own), Loop()
    loop.run(server.begin, None)
    try:
        yield Served(server.address, server.link)
    finally:
        loop.run(server.end, None)
        loop.stop()


def cookie_of(response: Got) -> str:
    """Return the cookie that an answer sets, as a browser sends it back."""
    return response.headers["set-cookie"].partition(";")[0]


def test_the_printed_address_opens_and_everything_else_does_not(tmp_path: Path) -> None:
    """The token gives a cookie and leaves the address; the logs hold neither."""
    asyncio.run(migrated(tmp_path))
    with served(tmp_path, "--log-level", "debug") as console:
        for path in ("/", "/tasks?q=a", "/nothing", "/login", "/audit.csv", f"/?token={GUESS}", "/?token="):
            response = console.ask(path)
            assert response.status == 401, path
            assert f"it is in {tmp_path}/state/makegood/console-token" in response.text
            assert console.token not in response.text
        for path in (
            "/api/v1/session",
            "/api/v1/tasks",
            f"/api/v1/session?token={console.token}",
            "/events?page=/",
        ):
            response = console.ask(path)
            assert (response.status, response.headers["www-authenticate"]) == (401, "Bearer"), path
            assert "console-token" in json.loads(response.text)["detail"]
        assert console.ask("/tasks/x/undo", method="POST").status == 401
        assert console.ask("/stores", Cookie="makegood_login=forged.forged").status == 401
        login = console.ask(f"/tasks?q=state%3Aerror&token={console.token}")
        assert (login.status, login.headers["location"]) == (303, "/tasks?q=state%3Aerror")
        assert login.headers["referrer-policy"] == "no-referrer"
        assert {"httponly", "samesite=lax"} <= {
            part.strip().lower() for part in login.headers["set-cookie"].split(";")
        }
        tasks = console.ask("/tasks", Cookie=cookie_of(login))
        assert tasks.status == 200
        assert "<span>admin</span>" in tasks.text
        again = console.ask(f"/?token={GUESS}", Cookie=cookie_of(login))  # an old bookmark
        assert (again.status, again.headers["location"], "set-cookie" in again.headers) == (303, "/", False)
        token = console.token
    log = (tmp_path / "log").read_text()
    assert "/tasks" in log
    assert token not in log
    assert GUESS not in log


def test_a_program_sends_the_token_as_a_bearer(tmp_path: Path) -> None:
    """And needs nothing else for a command; the token of a console without users is no password."""
    asyncio.run(migrated(tmp_path))
    with here(tmp_path) as console:
        own: dict[str, Any] = {"Authorization": f"Bearer {console.token}"}
        session = json.loads(console.ask("/api/v1/session", **own).text)
        assert (session["user"], session["role"]) == ("token", "admin")
        test_alert = console.ask(
            "/api/v1/alerts/test", method="POST", body="{}", content_type="application/json", **own
        )
        assert test_alert.status == 200
        assert console.ask("/tasks", Authorization=f"bearer  {console.token}").status == 200
        for wrong in (
            f"Bearer {GUESS}",
            "Bearer",
            "Bearer ",
            f"Basic {console.token}",
            console.token,
            f"Bearer {console.token}x",
        ):
            assert console.ask("/api/v1/session", Authorization=wrong).status == 401, wrong


def test_the_token_is_pasted_and_logged_out(tmp_path: Path) -> None:
    """On the page that asks for it. After the logout the cookie opens nothing, not even after a restart."""
    asyncio.run(migrated(tmp_path))
    form: dict[str, Any] = {
        "content_type": "application/x-www-form-urlencoded",
        "sec_fetch_site": "same-origin",
    }
    with here(tmp_path) as console:
        wrong = console.ask(
            "/login", method="POST", body=urlencode({"token": GUESS, "next": "/tasks"}), **form
        )
        assert (wrong.status, "That is not the token." in wrong.text) == (401, True)
        fields = urlencode({"token": console.token, "next": "/tasks"})
        login = console.ask("/login", method="POST", body=fields, **form)
        assert (login.status, login.headers["location"]) == (303, "/tasks")
        other = cookie_of(console.ask(f"/?token={console.token}"))
        cookie = cookie_of(login)
        page = console.ask("/tasks", Cookie=cookie).text
        csrf = re.search(r'name="csrf" value="([^"]+)"', page)
        assert csrf is not None
        left = console.ask("/logout", method="POST", body=urlencode({"csrf": csrf[1]}), Cookie=cookie, **form)
        assert left.status == 303
        assert console.ask("/tasks", Cookie=cookie).status == 401
    with here(tmp_path) as console:
        assert console.ask("/tasks", Cookie=cookie).status == 401
        assert console.ask("/tasks", Cookie=other).status == 200


async def linked(url: str) -> str:
    """Return the token in the address of a Node's console."""
    async with mg.Node(shop, url, options=QUIET, console="127.0.0.1:0") as node:
        address, _, token = node.console_link.partition("/?token=")
        assert address == node.console
        return token


def test_the_token_survives_restarts_in_a_private_file(tmp_path: Path) -> None:
    """The same for `console`, `run --console` and a Node of the same user; another user gets nothing."""
    url = asyncio.run(migrated(tmp_path))
    state = tmp_path / "state"
    with served(tmp_path) as console:
        first = console.token
    file = state / "makegood/console-token"
    assert (file.read_text().strip(), stat.S_IMODE(file.stat().st_mode)) == (first, 0o600)
    with served(tmp_path) as console:
        assert console.token == first
        if os.geteuid() == 0:
            asks = f"import urllib.request as r\nr.urlopen({console.address + '/api/v1/session'!r})"
            for program, why in ((asks, "401"), (f"open({str(file)!r})", "Permission")):
                stranger = run_as(VISITOR, Path("/"), "-c", program)
                assert why in stranger.stderr
    before = os.environ["XDG_STATE_HOME"]
    os.environ["XDG_STATE_HOME"] = str(state)
    try:
        assert asyncio.run(linked(url)) == first
    finally:
        os.environ["XDG_STATE_HOME"] = before
    (tmp_path / "shop.py").write_text("import makegood as mg\nshop = mg.App('shop')\n")
    command = [
        sys.executable,
        "-m",
        "makegood",
        "run",
        "shop:shop",
        "--store",
        url,
        "--console",
        "127.0.0.1:0",
        "--json",
    ]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"XDG_STATE_HOME": str(state)},
    ) as run:
        assert run.stdout is not None
        event = json.loads(run.stdout.readline())
        assert event["link"] == f"{event['console']}/?token={first}"
        run.send_signal(signal.SIGTERM)
        assert run.wait(60) == 0


def test_the_token_is_printed_into_no_log_that_others_may_read(tmp_path: Path) -> None:
    """Neither systemd's journal, nor JSON, nor a file that is open to others: the address has no token, and the log names its file."""
    asyncio.run(migrated(tmp_path))
    state = tmp_path / "systemd"
    own = os.environ | {"STATE_DIRECTORY": str(state), "MAKEGOOD_STORE": f"sqlite:///{tmp_path}/console.db"}
    cases: list[tuple[tuple[str, ...], bool, int]] = [
        ((), True, 0o600), (("--log-format", "json"), False, 0o600), ((), False, 0o640), ((), False, 0o604), ((), False, 0o600),
    ]  # fmt: skip
    for number, (words, journal, mode) in enumerate(cases):
        with (tmp_path / f"journal {number}").open("w") as log:
            os.fchmod(log.fileno(), mode)
            file_status = os.fstat(log.fileno())
            environ = own | (
                {"JOURNAL_STREAM": f"{file_status.st_dev}:{file_status.st_ino}"} if journal else {}
            )
            command = [sys.executable, "-m", *SERVES, *words]
            with subprocess.Popen(command, stderr=log, cwd=tmp_path, env=environ) as process:
                while "SIGTERM" not in (text := Path(log.name).read_text()):
                    assert process.poll() is None, text
                process.send_signal(signal.SIGTERM)
                process.wait(60)
        text = Path(log.name).read_text()
        assert str(state / "console-token") in text
        private = not journal and not words and mode == 0o600
        assert ((state / "console-token").read_text().strip() in text) is private
        assert ("token=" in text) is private


FORWARDED = ("Via", "Forwarded", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Server", "X-Forwarded-Whatever", "X-Real-IP", "CF-Connecting-IP", "True-Client-IP", "Client-IP", "X-Azure-ClientIP", "X-AppEngine-User-IP", "X-Remote-Addr", "Remote-User", "Forwarded-For", "X-Scheme", "Front-End-Https", "X-Arr-SSL", "Fly-Client-IP", "Tailscale-User-Login")  # fmt: skip
ODD_HOSTS = ("shop.example", "[::1]x", "localhost:1@evil")


def test_what_a_proxy_passes_on_is_not_local(tmp_path: Path) -> None:
    """Not even with the token, unless the settings list the proxy; and it is not told where the token is."""
    asyncio.run(migrated(tmp_path))
    own: dict[str, Any] = {"Authorization": f"Bearer {GUESS}"}
    odd: list[tuple[dict[str, Any], int]] = (
        [({name: "192.0.2.7"}, 11) for name in FORWARDED]
        + [({"Host": host}, 11) for host in ODD_HOSTS]
        + [({}, 10)]
    )
    with here(tmp_path, token=GUESS) as console:
        assert console.ask("/api/v1/session", **own).status == 200
        for headers, version in odd:
            assert console.ask("/api/v1/session", version=version, **own, **headers).status in (400, 403), (
                headers
            )
            response = console.ask("/", version=version, **headers)
            assert response.status in (400, 401), headers
            assert "console-token" not in response.text
    with here(tmp_path, token=GUESS, proxies=("127.0.0.1",)) as console:
        assert console.ask("/api/v1/session", version=10, **own).status == 200
        assert console.ask("/api/v1/session", X_Forwarded_For="192.0.2.7", **own).status == 200
        assert console.ask("/api/v1/session", X_Forwarded_For="192.0.2.7").status == 401


def test_a_new_password_ends_the_logins_with_the_old_one(tmp_path: Path) -> None:
    """With a secret that outlives the process, too; and a logout outlives it."""
    asyncio.run(migrated(tmp_path))
    secret = "a secret that outlives"
    old, new = hash_password(PASSWORD), hash_password("another " + PASSWORD)
    form: dict[str, Any] = {
        "content_type": "application/x-www-form-urlencoded",
        "sec_fetch_site": "same-origin",
    }
    fields = urlencode({"user": "ann", "password": PASSWORD, "next": "/tasks"})
    with here(tmp_path, users={"ann": User("ann", "operator", old)}, secret=secret) as console:
        assert "token" not in console.link
        first = cookie_of(console.ask("/login", method="POST", body=fields, **form))
        again = console.ask(
            "/login", method="POST", body=fields, Cookie=first, **form
        )  # who is logged in may log in
        assert (again.status, again.headers["location"]) == (303, "/tasks")
        assert console.ask("/tasks", Cookie=first).status == 303  # the login that it replaces has ended
    with here(tmp_path, users={"ann": User("ann", "operator", old)}, secret=secret) as console:
        assert console.ask("/tasks", Cookie=cookie_of(again)).status == 200
        assert console.ask("/tasks", Cookie=first).status == 303
    with here(tmp_path, users={"ann": User("ann", "operator", new)}, secret=secret) as console:
        assert console.ask("/tasks", Cookie=cookie_of(again)).headers["location"].startswith("/login")


def test_over_tls_the_cookies_and_the_host_are_bound_to_it(tmp_path: Path) -> None:
    """As a listed proxy says. A cookie that came without TLS under the plain name proves nothing there."""
    asyncio.run(migrated(tmp_path))
    with here(tmp_path, token=GUESS, proxies=("127.0.0.1",)) as console:
        tls: dict[str, Any] = {"X_Forwarded_Proto": "https", "Host": "ops.example"}
        root = console.ask(f"/?token={GUESS}", **tls)
        assert root.headers["set-cookie"].startswith("__Host-makegood_login=")
        assert {"secure", "path=/"} <= {
            part.strip().lower() for part in root.headers["set-cookie"].split(";")
        }
        assert root.headers["strict-transport-security"] == "max-age=31536000"
        below = console.ask(f"/?token={GUESS}", X_Forwarded_Prefix="/ops", **tls)
        assert below.headers["set-cookie"].startswith("__Secure-makegood_login=")
        assert below.headers["location"] == "/ops/"
        plain = console.ask(f"/?token={GUESS}")
        assert plain.headers["set-cookie"].startswith("makegood_login=")
        assert "strict-transport-security" not in plain.headers
        assert (
            "strict-transport-security"
            not in console.ask("/", X_Forwarded_Proto="https", Host="localhost").headers
        )  # localhost
        assert console.ask("/", Cookie=cookie_of(root), **tls).status == 200
        assert console.ask("/", Cookie=cookie_of(plain), **tls).status == 401


def test_a_user_whom_a_proxy_names_twice_is_refused(tmp_path: Path) -> None:
    """A proxy that adds its header to a browser's lets the browser be anybody."""
    asyncio.run(migrated(tmp_path))
    for header in ("X-Forwarded-User", "X-Staff"):
        with here(tmp_path, proxies=("127.0.0.1",), user_header=header, role="viewer") as console:
            where = urlsplit(console.address)
            connection = HTTPConnection(where.hostname or "", where.port, timeout=60)
            for names, status in ((["ann"], 200), (["eve", "ann"], 400), (["ann", "ann"], 400), ([], 401)):
                connection.putrequest("GET", "/api/v1/session")
                for name in names:
                    connection.putheader(header.upper(), name)
                connection.endheaders()
                answer = connection.getresponse()
                assert (answer.status, b"eve" in answer.read()) == (status, False)
            connection.close()


def test_a_token_goes_with_no_other_way_to_say_who_one_is() -> None:
    """And it is in no repr."""
    for others in ({"users": USERS}, {"insecure": True}, {"resolve_user": lambda _: "ann"}):
        with pytest.raises(mg.ConfigError, match="token= is for a console without users"):
            create_app("sqlite:///x.db", token=GUESS, **others)
    assert GUESS not in repr(ConsoleOptions(token=GUESS))
    assert User("ann", "viewer").password == ""
