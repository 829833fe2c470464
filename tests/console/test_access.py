"""Who may do what: every route of the table under every role, tokens, logins, proxies and hooks."""

import logging
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

import makegood as mg
from makegood.console import users
from makegood.console.app import create_app
from makegood.console.users import ROLES
from tests.console.asking import Browser
from tests.console.consoles import USERS, a_console, migrated, path_of

PASSWORD = "correct horse battery"
TOKEN = "the-token-of-a-test"


async def test_nobody_gets_in_without_a_login(tmp_path: Path) -> None:
    """Pages and acts send a browser to the login, programs get a 401; only the login and its files answer."""
    async with a_console(tmp_path) as console:
        for route in console.app.routes:
            response = await console.browser().ask(route.methods[0], path_of(route), b"", {})
            if route.role == "everyone":
                assert response.status in (200, 401, 404), route.path
            elif route.kind in ("api", "stream"):
                assert response.status == 401, route.path
            else:
                assert (response.status, response.headers["location"].split("?")[0]) == (303, "/login"), (
                    route.path
                )


@pytest.mark.parametrize("role", ROLES)
async def test_a_role_does_what_it_may_and_no_more(role: str, tmp_path: Path) -> None:
    """A write route with a right token: 403 for a lower role than the table says, and not 403 for the others."""
    name = next(user.name for user in USERS.values() if user.role == role)
    async with a_console(tmp_path) as console:
        assert console.writes
        for route in console.writes:
            browser = console.browser(name)
            token = console.token(browser)
            response = await browser.post(
                path_of(route), {"csrf": token, "reason": "a test"}, x_csrf_token=token
            )
            permission = ROLES.index(role) >= ROLES.index(route.role)
            assert (response.status != 403) is permission, route.path
            if not permission:
                assert f"This needs the role {route.role}" in response.text


@pytest.mark.parametrize("role", ["operator", "admin"])
async def test_no_act_without_the_token_of_the_login(role: str, tmp_path: Path) -> None:
    """Neither without one, nor with another login's, nor from another site's page with the right one."""
    name = next(user.name for user in USERS.values() if user.role == role)
    async with a_console(tmp_path) as console:
        other = console.token(console.browser(name))
        for route in console.writes:
            browser = console.browser(name)
            for fields in ({}, {"csrf": ""}, {"csrf": other}, {"csrf": "é"}):
                assert (await browser.post(path_of(route), fields)).status == 403, route.path
            token = {"csrf": console.token(browser)}
            for site in ("cross-site", "same-site", "none"):
                response = await browser.post(path_of(route), token, sec_fetch_site=site)
                assert response.status == 403, route.path
        assert (await console.browser(name).post("/logout", {})).status == 403


async def test_whoever_is_logged_in_may_log_in_as_another_user(tmp_path: Path) -> None:
    """The form of the login page is bound to no login; another site's page still cannot send it."""
    ann = users.User("ann", "operator", users.hash_password(PASSWORD))
    async with a_console(tmp_path, users={**USERS, "ann": ann}) as console:
        browser = console.browser("vera")
        before = browser.cookies["makegood_login"]
        fields = {"user": "ann", "password": PASSWORD}
        assert (await browser.post("/login", fields, sec_fetch_site="cross-site")).status == 403
        assert (await browser.post("/login", {**fields, "password": "wrong"})).status == 401
        assert (await browser.post("/login", fields)).status == 303
        assert "<b>ann</b><span>operator</span>" in (await browser.get("/")).text
        browser.cookies["makegood_login"] = before
        assert (await browser.get("/")).status == 303


async def test_no_get_changes_anything(tmp_path: Path) -> None:
    """Not even a look at every page as an administrator: the audit stays empty, and so do the tables of acts."""
    async with a_console(tmp_path) as console:
        for route in console.app.routes:
            if route.methods == ("GET",) and route.kind != "stream":
                await console.browser("ada").get(path_of(route))
        async with mg.Client(console.url) as client:
            assert await client.audit() == []
            assert await client.alerts(ended=True) == []


async def test_a_user_logs_in_and_out(tmp_path: Path) -> None:
    """The cookie is out of a script's reach, goes to no other site's request, and is worthless after the logout."""
    ann = users.User("ann", "operator", users.hash_password(PASSWORD))
    async with a_console(tmp_path, users={"ann": ann}) as console:
        browser = console.browser()
        redirect = await browser.get("/?x=1")
        assert redirect.headers["location"] == "/login?next=%2F%3Fx%3D1"
        assert 'name="next" value="/?x=1"' in (await browser.get(redirect.headers["location"])).text
        response = await browser.post("/login", {"user": "ann", "password": PASSWORD, "next": "/?x=1"})
        assert (response.status, response.headers["location"]) == (303, "/?x=1")
        flags = {part.strip().lower() for part in response.headers["set-cookie"].split(";")[1:]}
        assert {"httponly", "samesite=lax", "path=/"} <= flags
        assert "secure" not in flags  # over plain HTTP the browser would not send it back
        assert "<b>ann</b><span>operator</span>" in (await browser.get("/")).text
        cookies = dict(browser.cookies)
        assert (await browser.post("/logout", {"csrf": console.token(browser)})).status == 303
        assert browser.cookies == {}
        browser.cookies = cookies
        assert (await browser.get("/")).status == 303


async def test_the_cookie_is_secure_behind_tls(tmp_path: Path) -> None:
    """As a listed proxy says; nobody else's word counts."""
    ann = users.User("ann", "operator", users.hash_password(PASSWORD))
    async with a_console(tmp_path, users={"ann": ann}, proxies=["127.0.0.1"]) as console:
        fields = {"user": "ann", "password": PASSWORD}
        response = await console.browser().post(
            "/login", fields, x_forwarded_proto="https", x_forwarded_prefix="/ops"
        )
        assert "Secure" in response.headers["set-cookie"]
        assert "Path=/ops" in response.headers["set-cookie"]
        assert response.headers["location"] == "/ops/"
        stranger = await console.browser(client="192.0.2.1").post("/login", fields, x_forwarded_proto="https")
        assert "Secure" not in stranger.headers["set-cookie"]


async def test_failures_look_alike_and_are_limited(tmp_path: Path) -> None:
    """An unknown user, a wrong password, a user without one; after five the right password is not even tried."""
    ann = users.User("ann", "operator", users.hash_password(PASSWORD))
    async with a_console(tmp_path, users={"ann": ann, "bob": users.User("bob", "admin")}) as console:
        texts: list[str] = []
        for name in ("ann", "bob", "eve"):
            response = await console.browser(client=f"192.0.2.{len(texts)}").login(name, "wrong password")
            assert response.status == 401
            texts.append(response.text.replace(f'value="{name}"', ""))
        assert len(set(texts)) == 1
        for _ in range(5):
            assert (await console.browser(client="192.0.2.9").login("ann", "wrong")).status == 401
        response = await console.browser(client="192.0.2.9").login("ann", PASSWORD)
        assert (response.status, int(response.headers["retry-after"]) > 0) == (429, True)
        assert (await console.browser(client="192.0.2.10").login("ann", PASSWORD)).status == 303


@pytest.mark.parametrize(
    "after",
    ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "/a\nb", "//[x"],
)
async def test_a_login_leads_to_the_console_only(after: str, tmp_path: Path) -> None:
    """Whatever address somebody put into the link."""
    ann = users.User("ann", "operator", users.hash_password(PASSWORD))
    async with a_console(tmp_path, users={"ann": ann}) as console:
        assert (await console.browser().get(f"/login?{urlencode({'next': after})}")).status == 200
        response = await console.browser().post(
            "/login", {"user": "ann", "password": PASSWORD, "next": after}
        )
        assert response.headers["location"] == "/"


async def test_a_user_who_is_removed_is_out_at_once(tmp_path: Path) -> None:
    """The cookie holds no role: the settings do."""
    async with a_console(tmp_path) as console:
        browser = console.browser("ada")
        assert (await browser.get("/")).status == 200
        console.app.access.users = {}
        assert (await browser.get("/")).status != 200


async def test_a_proxy_names_the_user(tmp_path: Path) -> None:
    """A listed one; the header of anybody else is nobody's. Roles come from the settings, or are all the same."""
    proxy_settings = {"proxies": ["10.0.0.0/8"], "user_header": "X-Forwarded-User"}
    async with a_console(
        tmp_path, users={"ada": users.User("ada", "admin")}, role="viewer", **proxy_settings
    ) as console:
        behind = console.browser(client="10.0.0.1")
        assert "<b>ada</b><span>admin</span>" in (await behind.get("/", x_forwarded_user="ada")).text
        assert "<b>new</b><span>viewer</span>" in (await behind.get("/", x_forwarded_user="new")).text
        assert (await behind.get("/")).status == 401
        assert (await console.browser(client="192.0.2.1").get("/", x_forwarded_user="ada")).status == 401
        assert (await console.browser().get("/", x_forwarded_user="ada")).status == 401
    with pytest.raises(mg.ConfigError, match="from listed proxies only"):
        create_app("sqlite:///x.db", user_header="X-Forwarded-User")


async def test_the_application_s_hooks_decide(tmp_path: Path) -> None:
    """Plain or asynchronous; None is nobody, or no access; a role that does not exist is an error, not an access."""

    async def resolve_access(user: str) -> str | None:
        return {"ann": "operator", "root": "root"}.get(user)

    hooks = {
        "users": {},
        "resolve_user": lambda request: request.headers.get("x-me"),
        "resolve_access": resolve_access,
    }
    async with a_console(tmp_path, **hooks) as console:
        assert "<b>ann</b><span>operator</span>" in (await console.browser().get("/", x_me="ann")).text
        assert (await console.browser().get("/")).status == 401
        assert (await console.browser().get("/", x_me="eve")).status == 403
        assert (await console.browser().get("/", x_me="root")).status == 400
        assert (await console.browser().get("/login")).status == 404
        assert (await console.browser(client="192.0.2.1").get("/", x_me="ann")).status == 200


async def test_without_users_only_this_machine_is_answered_and_only_with_the_token(tmp_path: Path) -> None:
    """Unless it was said to be insecure: then every page says so."""
    async with a_console(tmp_path, users={}, token=TOKEN, role="operator") as console:
        own: dict[str, Any] = {"headers": {"authorization": f"Bearer {TOKEN}"}}
        assert "<b>token</b><span>operator</span>" in (await console.browser(**own).get("/")).text
        for where in ({"host": "evil.example"}, {"client": "192.0.2.1"}):
            assert (await console.browser(**where).get("/")).status == 401
            stranger = await console.browser(**where, **own).get("/")
            assert stranger.status == 403
            assert "its own machine only" in stranger.text
        assert "Nobody logs in here" not in (await console.browser(**own).get("/")).text
    async with create_app(await migrated(tmp_path), insecure=True) as app:
        for path in ("/", "/nothing"):
            assert "Nobody logs in here" in (await Browser(app, client="192.0.2.1").get(path)).text
    with pytest.raises(mg.ConfigError, match="insecure"):
        create_app("sqlite:///x.db", users=USERS, insecure=True)


async def test_the_access_log_forges_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A newline in a path or a name stays in its field; passwords and query strings are nowhere."""
    caplog.set_level(logging.INFO, "makegood.console.access")
    async with a_console(tmp_path) as console:
        await console.browser("ada").get("/a\nb: 200 forged?token=hunter2")
        await console.browser().login("eve\nforged", "hunter2-hunter2")
    records = [record for record in caplog.records if record.name == "makegood.console.access"]
    assert len(records) == 2
    for record in records:
        assert "\n" not in record.getMessage()
        assert "hunter2" not in str(record.__dict__)
    assert (records[0].user, records[0].role, records[0].status) == ("ada", "admin", 404)  # type: ignore[attr-defined]
