"""The small parts under the pages: passwords, cookies, limits, proxies, redaction, shared reads."""

import asyncio
import json
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from starlette.requests import Request

import makegood as mg
from makegood.base.secret_names import COVER
from makegood.console import private_state, proxies, redaction, users
from makegood.console.elements import cut
from makegood.console.reads import Reads
from makegood.console.security_headers import HEADERS
from makegood.console.sessions import LASTS, WINDOW, LoginLimits, Logins
from makegood.console.static_files import StaticFiles
from tests.clocks import HandClock

LONG = "correct horse battery"


def asked(client: str, headers: dict[str, str] | None = None) -> Request:
    """Return a request."""
    raw = [
        (name.encode(), value.encode()) for name, value in ({"host": "localhost"} | (headers or {})).items()
    ]
    return Request(
        {
            "type": "http",
            "method": "GET",
            "path": "/",
            "headers": raw,
            "client": (client, 1),
            "scheme": "http",
        }
    )


def test_a_password_is_kept_as_a_salted_hash() -> None:
    """Two hashes of one password differ, both accept it and nothing else; an unknown user is never accepted."""
    one, two = users.hash_password(LONG), users.hash_password(LONG)
    assert one != two
    assert LONG not in one
    for password_hash in (one, two):
        ann = users.User("ann", "viewer", password_hash)
        assert users.accepts(ann, LONG)
        assert not users.accepts(ann, LONG + "x")
    assert not users.accepts(None, LONG)
    assert not users.accepts(users.User("ann", "admin"), "")
    with pytest.raises(mg.ConfigError, match="12 to 1024 characters"):
        users.hash_password("short")


@pytest.mark.parametrize(
    ("line", "why"),
    [("root", "'root' is not a role"), ("", "write NAME"), ("viewer a b", "write NAME"), ("viewer scrypt:1:1:1:a:b", "not a hash"),
     ("admin scrypt:30:8:1:AAAAAAAAAAAAAAAAAAAAAA:AAAA", "not a hash")],
)  # fmt: skip
def test_a_wrong_line_of_the_users_is_refused(line: str, why: str) -> None:
    """A hash that would cost any amount of memory, too."""
    with pytest.raises(mg.ConfigError, match=why):
        users.users_of({"ann": line}, "console_users")


def test_users_are_read_from_settings() -> None:
    """With a hash, or without for those whom a proxy names."""
    password_hash = users.hash_password(LONG)
    accounts = users.users_of({"ann": f"admin {password_hash}", "bob": "viewer"}, "console_users")
    assert accounts == {"ann": users.User("ann", "admin", password_hash), "bob": users.User("bob", "viewer")}


def test_a_cookie_is_valid_until_it_expires_or_is_logged_out() -> None:
    """One that another secret signed, or that was changed, never is."""
    clock = HandClock()
    logins = Logins(clock, "secret")
    proofs = {"ann": "a hash"}

    def proof(name: str) -> str:
        return proofs.get(name, "")

    cookie = logins.cookie("ann", proof("ann"))
    login = logins.read(cookie, proof)
    assert login is not None
    assert login.user == "ann"
    assert Logins(clock, "secret").read(cookie, proof) == login
    assert Logins(clock, "other").read(cookie, proof) is None
    for bad_cookie in (cookie[:-2], "", "é.é", ".", "bm90IGpzb24.x", f"{cookie}x", "A" * 5 + cookie):
        assert logins.read(bad_cookie, proof) is None
    second = logins.cookie("ann", proof("ann"))
    logins.end(login)
    assert logins.read(cookie, proof) is None
    assert logins.read(second, proof) is not None
    proofs["ann"] = "the hash of a new password"
    assert logins.read(second, proof) is None
    del proofs["ann"]
    assert logins.read(logins.cookie("ann", ""), proof) is None
    proofs["ann"] = "a hash"
    clock.forward(LASTS)
    assert logins.read(second, proof) is None


def test_a_logout_outlives_the_process_as_the_logins_do(tmp_path: Path) -> None:
    """In a private file, which the other consoles of the user read too; what has expired leaves it."""
    clock, file = HandClock(), tmp_path / "state" / "console-logouts"
    logins, other = (Logins(clock, "secret", file) for _ in range(2))
    cookies = [logins.cookie("ann", "a hash") for _ in range(2)]
    for cookie in cookies:
        assert other.read(cookie, lambda _: "a hash") is not None
        login = logins.read(cookie, lambda _: "a hash")
        assert login is not None
        logins.end(login)
    for console in (other, Logins(clock, "secret", file)):
        assert [console.read(cookie, lambda _: "a hash") for cookie in cookies] == [None, None]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    clock.forward(LASTS + 1)
    login = logins.read(logins.cookie("ann", "a hash"), lambda _: "a hash")
    assert login is not None
    logins.end(login)
    assert file.read_text().split()[0] == login.nonce
    assert len(file.read_text().splitlines()) == 1


def test_the_first_console_of_a_user_draws_the_token(tmp_path: Path) -> None:
    """The others read it: from a file that nobody else reads, in the folder that systemd or the user has for it."""
    for environ in (
        {"STATE_DIRECTORY": f"{tmp_path}/own:{tmp_path}/second"},
        {"XDG_STATE_HOME": str(tmp_path)},
    ):
        first = private_state.token_of(environ=environ)
        assert first == private_state.token_of(environ=environ)
        assert first.file is not None
        assert stat.S_IMODE(first.file.stat().st_mode) == 0o600
        assert stat.S_IMODE(first.file.parent.stat().st_mode) == 0o700
        assert first.file.read_text().strip() == first.text
        assert [file.name for file in first.file.parent.iterdir()] == ["console-token"]
    assert {folder.name for folder in tmp_path.iterdir()} == {"own", "makegood"}


def test_many_consoles_at_once_draw_one_token(tmp_path: Path) -> None:
    """The first one to keep it wins."""
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    with ThreadPoolExecutor(8) as pool:
        tokens = set(pool.map(lambda _: private_state.token_of(environ=environ), range(50)))
    assert len(tokens) == 1


@pytest.mark.parametrize(("mode", "text", "why"), [(0o644, "", "known to every user"), (0o600, "short", "does not hold a token"), (0o600, "é" * 30, "does not hold")])  # fmt: skip
def test_a_token_that_others_know_is_refused(tmp_path: Path, mode: int, text: str, why: str) -> None:
    """And one that is none; the error shows nothing of it."""
    environ = {"STATE_DIRECTORY": str(tmp_path)}
    token = private_state.token_of(environ=environ)
    assert token.file is not None
    token.file.write_text(text or token.text)
    token.file.chmod(mode)
    with pytest.raises(mg.ConfigError, match=why) as error:
        private_state.token_of(environ=environ)
    assert token.text not in str(error.value)
    assert "rm " in str(error.value)


def test_without_a_place_the_token_lasts_as_long_as_the_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Which is logged, with what to set; the token is not."""
    (tmp_path / "file").write_text("")
    token = private_state.token_of(environ={"STATE_DIRECTORY": str(tmp_path / "file" / "below")})
    assert token.file is None
    assert "set console_token" in caplog.text
    assert token.text not in caplog.text
    for weak in ("", "short", "has blanks in it, and is long", "é" * 40):
        with pytest.raises(mg.ConfigError, match="console_token"):
            private_state.token_of(weak)


def test_failed_logins_are_limited_by_name_and_address() -> None:
    """Five of a pair, twenty of an address; a success forgets those of its pair, and time all."""
    clock = HandClock()
    limits = LoginLimits(clock)
    for _ in range(5):
        assert limits.wait("ann", "a") == 0
        limits.count_failure("ann", "a")
    assert limits.wait("ann", "a") == WINDOW
    assert limits.wait("ann", "b") == limits.wait("bob", "a") == 0
    for n in range(15):
        limits.count_failure(f"user {n}", "a")
    assert limits.wait("bob", "a") == WINDOW
    clock.forward(WINDOW)
    assert limits.wait("bob", "a") == limits.wait("ann", "a") == 0
    limits.count_failure("ann", "a")
    limits.forget_failures("ann", "a")
    assert limits.wait("ann", "a") == 0


def test_limits_keep_bounded_memory() -> None:
    """Whatever names a stranger tries."""
    limits = LoginLimits(HandClock())
    for n in range(12_000):
        limits.count_failure(f"name {n}", f"address {n}")
    assert len(limits._failed) <= 10_000


def test_a_header_counts_only_from_a_listed_proxy() -> None:
    """The address is that of the last hop which is not listed; what a browser itself sent before it counts for nothing."""
    proxy_list = proxies.TrustedProxies(["10.0.0.0/8", "127.0.0.1"])
    headers = {
        "x-forwarded-for": "1.1.1.1, 192.0.2.7, 10.0.0.9",
        "x-forwarded-proto": "https",
        "x-forwarded-prefix": "/ops",
    }
    behind = proxy_list.origin(asked("10.0.0.1", headers))
    assert (behind.address, behind.secure, behind.base, behind.trusted) == ("192.0.2.7", True, "/ops", True)
    stranger = proxy_list.origin(asked("192.0.2.1", headers))
    assert (stranger.address, stranger.secure, stranger.base, stranger.trusted) == (
        "192.0.2.1",
        False,
        "",
        False,
    )
    assert proxy_list.origin(asked("10.0.0.1", {"x-forwarded-for": "unknown"})).address == "10.0.0.1"
    assert proxy_list.origin(asked("::ffff:10.0.0.1", headers)).trusted
    with pytest.raises(mg.ConfigError, match="console_proxies"):
        proxies.TrustedProxies(["proxy.internal"])


@pytest.mark.parametrize(
    ("client", "headers", "local"),
    [("127.0.0.1", {}, True), ("::1", {"host": "[::1]:8640"}, True), ("127.0.0.1", {"host": "127.0.0.1:8640"}, True),
     ("127.0.0.1", {"host": "LOCALHOST:8640"}, True), ("127.0.0.1", {"host": "shop.localhost"}, True), ("127.0.0.2", {}, True),
     ("127.0.0.1", {"cf": "1", "x-request-id": "1", "origin": "http://localhost"}, True),
     *(("127.0.0.1", {"host": host}, False) for host in ("evil.example", "[::1]x", "localhost:1@evil", "localhost@evil", "[::1].evil", "localhost:", "localhost.",
       "evil#localhost", "localhost/x", "127.0.0.1.nip.io", "evil.localhost.example", "", "[localhost]", "localhost:123456", "[127.0.0.1", "local host")),
     *(("127.0.0.1", {name: "1"}, False) for name in ("x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-port", "x-forwarded-server", "x-forwarded-prefix",
       "X-Forwarded-Anything", "forwarded", "via", "x-real-ip", "cf-connecting-ip", "cf-ray", "true-client-ip", "x-client-ip", "fastly-client-ip", "fly-client-ip", "x-cluster-client-ip",
       "cdn-loop", "x-envoy-external-address", "x-original-host", "x-amzn-trace-id")),
     ("192.0.2.1", {}, False), ("", {}, False)],
)  # fmt: skip
def test_only_a_browser_of_this_machine_is_local(
    client: str, headers: dict[str, str], *, local: bool
) -> None:
    """A page that gave its own name the address 127.0.0.1 is not, and neither is what a proxy passes on."""
    assert proxies.is_local(asked(client, headers)) is local


def test_fields_with_secret_names_are_covered() -> None:
    """At any depth, and numbers keep their digits; an administrator sees the whole."""
    order = {
        "id": "o-1",
        "card_number": "4111",
        "customer": {"password": "x", "name": "Ann"},
        "lines": [{"apiKey": "k", "n": 1}],
    }
    payload = json.dumps(order).encode()[:-1] + b', "big": 9007199254740993, "price": 1.10}'
    text = redaction.Redaction().text(payload)
    assert json.loads(text)["customer"] == {"password": COVER, "name": "Ann"}
    assert json.loads(text)["card_number"] == json.loads(text)["lines"][0]["apiKey"] == COVER
    assert '"big": 9007199254740993' in text
    assert '"price": 1.10' in text
    assert json.loads(redaction.Redaction().text(payload, whole=True))["card_number"] == "4111"


def test_the_hook_covers_what_the_application_knows() -> None:
    """It gets the path of a field, and its value."""
    hook = redaction.Redaction(lambda path, value: "…" if path == "customer.name" else value)
    assert json.loads(hook.text(b'{"customer": {"name": "Ann", "id": 7}}')) == {
        "customer": {"name": "…", "id": 7}
    }


@pytest.mark.parametrize("payload", [b"\x00\xff", b"{", b"[" * 100_000], ids=["bytes", "half", "deep"])
def test_what_is_no_json_is_only_measured(payload: bytes) -> None:
    """An encrypted payload stays opaque."""
    assert "bytes" in redaction.Redaction().text(payload)


def test_invisible_characters_of_a_payload_are_shown() -> None:
    """A name that is written from right to left cannot dress up as another."""
    assert "\u202e" not in redaction.Redaction().text('{"a": "b\u202ec"}'.encode())
    assert "\\u202e" in redaction.Redaction().text('{"a": "b\u202ec"}'.encode())


async def test_a_read_is_shared_for_a_second() -> None:
    """Between all who ask at once and soon after; a failure is not kept, and neither is a read that was broken off."""
    clock, calls, gate = HandClock(), 0, asyncio.Event()
    reads = Reads(mg.Client("sqlite:///never-opened.db"), clock)

    async def read() -> int:
        nonlocal calls
        calls += 1
        await gate.wait()
        return calls

    asking = [asyncio.ensure_future(reads.share("a", read)) for _ in range(3)]
    await asyncio.sleep(0)
    asking.pop(0).cancel()  # whoever was first to ask is gone; the others still get theirs
    await asyncio.sleep(0)
    gate.set()
    assert await asyncio.gather(*asking) == [2, 2]
    assert await reads.share("a", read) == 2
    clock.forward(1.0)
    assert await reads.share("a", read) == 3
    reads.forget()
    assert await reads.share("a", read) == 4

    async def failing() -> int:
        raise mg.StoreUnavailableError("away")

    with pytest.raises(mg.StoreUnavailableError):
        await reads.share("b", failing)
    assert await reads.share("b", read) == 5


def test_elements_are_cut_out_of_a_page_by_their_ids() -> None:
    """Nested ones, void ones inside, several lines, signs in attributes, and what a payload may hold."""
    text = '<div>\n<p id="a">x<br>\n<i id="b">y</i></p><img id="c"><b title="age:>5m \'" id="d">&lt;/b&gt;<svg><path d="M0"/></svg></b></div>'
    assert cut(text, ["d", "a", "b", "z"]) == {
        "d": '<b title="age:>5m \'" id="d">&lt;/b&gt;<svg><path d="M0"/></svg></b>',
        "a": '<p id="a">x<br>\n<i id="b">y</i></p>',
        "b": '<i id="b">y</i>',
    }


def test_nothing_runs_inline() -> None:
    """The policy allows the console's own files and nothing else; their names hold their content."""
    assert "unsafe" not in HEADERS["content-security-policy"]
    assert StaticFiles().path("style.css").startswith("/static/")
