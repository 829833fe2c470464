"""Who may do what: the one place that admits a request to its route.

A visitor is known by one of four ways: the embedding application's hooks, a trusted proxy's header, a login
of this console, or none, when only browsers on this machine are answered (or everybody, with ``insecure``).
"""

import asyncio
import base64
import hmac
import inspect
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request

from makegood.base.clock import Clock
from makegood.base.text import kept
from makegood.console.proxies import TrustedProxies, is_local
from makegood.console.sessions import COOKIE, Login, LoginLimits, Logins
from makegood.console.users import Role, User, accepts, role_of
from makegood.console.visits import NOBODY, Denied, Route, Visitor, Whence
from makegood.errors import ConfigError

ResolveUser = Callable[[Any], Any | Awaitable[Any]]
"""Returns the user of a request (a text, or an object with its name as ``str``), or None for nobody."""
ResolveAccess = Callable[[Any], Awaitable[Role | None] | Role | None]
"""Returns the role of such a user, or None for no access."""

AT_A_TIME: Final = 2
"""Passwords that are hashed at the same time: each takes 32 MiB."""
MOST_FORM: Final = 1 << 20
"""The most bytes of a form."""
TOKEN_HEADER: Final = "x-csrf-token"  # noqa: S105 - a header's name


class LoginNeededError(Denied):
    """Nobody is logged in, and this console has a login page."""


class TooManyAttemptsError(Denied):
    """Too many wrong passwords. ``wait``: seconds until the next attempt is examined."""

    def __init__(self, wait: float) -> None:
        text = f"Too many failed attempts. Try again in {math.ceil(wait / 60)} minutes."
        super().__init__(429, "Too many attempts", text)
        self.wait = wait


class Access:
    """Says who asks, and refuses what their role does not allow."""

    def __init__(
        self,
        clock: Clock,
        *,
        users: Mapping[str, User],
        resolve_user: ResolveUser | None,
        resolve_access: ResolveAccess | None,
        proxies: Iterable[str],
        base: str,
        user_header: str | None,
        role: Role | None,
        insecure: bool,
        secret: str | None,
    ) -> None:
        self.proxies = TrustedProxies(proxies, base)
        self.users = users
        self.insecure = insecure
        self.logins = Logins(clock, secret)
        self.limits = LoginLimits(clock)
        self._resolve = resolve_user, resolve_access
        self._header = user_header
        self._hashing = asyncio.Semaphore(AT_A_TIME)
        self.authenticates = resolve_user is not None or user_header is not None or bool(users)
        """Whether visitors must say who they are."""
        self._role = None if role is None else role_of(role, "role")
        if resolve_access is not None and resolve_user is None:
            raise ConfigError("resolve_access= says what a user may do; give resolve_user= as well")
        if user_header is not None and not list(proxies):
            raise ConfigError(
                f"user_header={user_header!r} is believed from listed proxies only: give proxies="
            )
        if insecure and self.authenticates:
            raise ConfigError("insecure= means that nobody logs in: leave it out, or leave out the users")

    @property
    def has_login(self) -> bool:
        """Whether visitors can log in to this console itself."""
        return self._resolve[0] is None and any(user.password for user in self.users.values())

    async def visitor(self, request: Request, origin: Whence) -> Visitor | None:
        """Return who asks, None for nobody. Raises ``Denied`` for somebody who has no access at all."""
        resolve, access = self._resolve
        if resolve is not None:
            return await self._resolved(request, resolve, access)
        if (
            self._header is not None
            and origin.trusted
            and (name := request.headers.get(self._header, "").strip())
        ):
            known = self.users.get(name)
            return self._as(kept(name), known.role if known is not None else self._role)
        if self.authenticates:
            if (given := request.headers.get("authorization", "")).lower().startswith("basic "):
                return await self._by_password(given, origin)
            login = self.login(request)
            user = None if login is None else self.users.get(login.user)
            if login is None or user is None or not user.password:
                return None
            return Visitor(user.name, user.role, self.logins.token(login.nonce), leaves=True)
        if not self.insecure and not is_local(request):
            raise Denied(
                403,
                "Only on this machine",
                "This console has no users, so it answers browsers on its own machine only. Add users, or pass requests on through "
                "a proxy that names them.",
            )
        return self._as("anonymous", self._role or "admin")

    async def _by_password(self, given: str, origin: Whence) -> Visitor | None:
        """Return the user whose name and password a program sends with its request, None if they are wrong.

        No cookie speaks for it, so no other site's page can send it: its acts need no token.
        """
        try:
            name, _, password = base64.b64decode(given[6:], validate=True).decode().partition(":")
        except ValueError:
            return None
        user = await self.proved(name, password, origin.address)
        return None if user is None else Visitor(user.name, user.role, "", by_password=True)

    async def proved(self, name: str, password: str, address: str) -> User | None:
        """Return the user with this name and password; None if one of them is wrong, after the same time.

        Raises ``TooManyAttemptsError``.
        """
        if wait := self.limits.wait(name, address):
            raise TooManyAttemptsError(wait)
        self.limits.failed(name, address)  # before the password is hashed: attempts side by side all count
        user = self.users.get(name)
        async with self._hashing:
            right = await asyncio.to_thread(accepts, user, password)
        if user is None or not right:
            return None
        self.limits.passed(name, address)
        return user

    def login(self, request: Request) -> Login | None:
        """Return the login that a request's cookie proves."""
        return self.logins.read(request.cookies.get(COOKIE, ""))

    async def _resolved(
        self, request: Request, resolve: ResolveUser, access: ResolveAccess | None
    ) -> Visitor | None:
        user = await _awaited(resolve(request))
        if user is None:
            return None
        role = self._role or "viewer" if access is None else await _awaited(access(user))
        return self._as(kept(str(user)), None if role is None else role_of(role, "resolve_access"))

    def _as(self, name: str, role: Role | None) -> Visitor:
        if role is None:
            raise Denied(403, "No access", f"{name} has no role in this console.")
        return Visitor(name, role, self.logins.token(f"user {name}"))

    def admit(
        self, route: Route, request: Request, visitor: Visitor | None, form: Mapping[str, str]
    ) -> Visitor:
        """Return who is admitted to a route. Raises ``Denied`` for anybody else.

        A request that may change something must carry the token of its login, and come from the console's
        own pages.
        """
        who = visitor or NOBODY
        if visitor is None and route.role != "everyone":
            if self.has_login:
                raise LoginNeededError(401, "Log in", "Log in to use the console.")
            raise Denied(401, "Nobody is logged in", "This console does not know who you are.")
        if not who.may(route.role):
            raise Denied(
                403, f"For role {route.role}", f"This needs the role {route.role}; {who.name} is {who.role}."
            )
        if route.writes:
            self._own(route, request, visitor, form)
        return who

    def _own(self, route: Route, request: Request, visitor: Visitor | None, form: Mapping[str, str]) -> None:
        """Refuse a request that another site's page may have sent."""
        if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
            raise Denied(
                403, "From another site", "The browser says that another site's page sent this request."
            )
        if visitor is None and route.kind == "login":
            return  # there is no login yet that a token could be bound to
        if visitor is not None and visitor.by_password:
            return
        token = request.headers.get(TOKEN_HEADER) or form.get("csrf", "")
        if visitor is None or not hmac.compare_digest(
            token.encode("utf-8", "surrogatepass"), visitor.token.encode()
        ):
            raise Denied(
                403,
                "An old page",
                "The form's token does not belong to your login. Open the page again, and repeat it there.",
            )


async def _awaited(found: Any) -> Any:
    return await found if inspect.isawaitable(found) else found


async def body_of(request: Request) -> bytes:
    """Return the body of a request. Raises ``Denied`` if it is too long, or broken off."""
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > MOST_FORM:
                raise Denied(413, "Too long", f"A form has at most {MOST_FORM:,} bytes.")
            parts.append(part)
    except ClientDisconnect:
        raise Denied(400, "Broken off", "The request was broken off.") from None
    return b"".join(parts)
