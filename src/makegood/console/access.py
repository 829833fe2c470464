"""Who may do what: the one place that admits a request to its route.

A visitor is known by one of four ways: the embedding application's hooks, a trusted proxy's header, a login
of this console, or, where there are no users, the console's token. With ``insecure`` everybody is let in.
"""

import asyncio
import base64
import hmac
import inspect
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request

from makegood.base.clock import Clock
from makegood.base.text import storable_text
from makegood.console.options import ConsoleOptions
from makegood.console.private_state import logouts, token_of
from makegood.console.proxies import TrustedProxies, is_local
from makegood.console.sessions import COOKIE, Login, LoginLimits, Logins, ProvenPasswords
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
MOST_LOGIN: Final = 1 << 16
"""The most bytes of a form that nobody has to be logged in for."""
BODY: Final = 10.0
"""Seconds within which the body of a request must have arrived."""
TOKEN_HEADER: Final = "x-csrf-token"  # noqa: S105 - a header's name
_LOCAL: Final = (
    "This console has no users, so it answers its own machine only, and no proxy that is not in console_proxies. Add users, "
    "or pass requests on through a proxy that names them."
)
HOLDER: Final = "token"
"""The name of a visitor whom the console's token proves."""


class LoginNeededError(Denied):
    """Nobody is logged in, and this console has a login page."""


class BrokenOffError(Denied):
    """A request whose client has left: nobody reads the answer."""

    def __init__(self) -> None:
        super().__init__(400, "Broken off", "The request was broken off.")


class TokenNeededError(Denied):
    """The console has no users, and a request does not carry its token."""

    def __init__(self, where: str) -> None:
        text = "This console has no users, so it opens for its token: use the address that its command printed, or paste the token."
        super().__init__(401, "The token is missing", f"{text} {where}".strip())


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
        options: ConsoleOptions,
        hooks: tuple[ResolveUser | None, ResolveAccess | None] = (None, None),
    ) -> None:
        self.proxies = TrustedProxies(options.proxies, options.base)
        self.users = options.users
        self.insecure = options.insecure
        self.limits = LoginLimits(clock)
        self._resolve = resolve_user, resolve_access = hooks
        self._header = options.user_header
        self._hashing = asyncio.Semaphore(AT_A_TIME)
        self._proven = ProvenPasswords(clock)
        self.authenticates = resolve_user is not None or options.authenticates
        """Whether visitors must say who they are."""
        self._role = None if options.role is None else role_of(options.role, "role")
        if resolve_access is not None and resolve_user is None:
            raise ConfigError("resolve_access= says what a user may do; give resolve_user= as well")
        if self._header is not None and not options.proxies:
            raise ConfigError(
                f"user_header={self._header!r} is believed from listed proxies only: give proxies="
            )
        if self.insecure and self.authenticates:
            raise ConfigError("insecure= means that nobody logs in: leave it out, or leave out the users")
        is_open = self.insecure or self.authenticates
        if options.token is not None and is_open:
            raise ConfigError(
                "token= is for a console without users: leave it out, or leave out what says who visitors are"
            )
        self.token = None if is_open else token_of(options.token)
        """What lets visitors in, if there is no other way to say who they are."""
        secret = options.secret or (self.token.text if self.token is not None else None)
        self.logins = Logins(clock, secret, None if secret is None else logouts())

    @property
    def has_login(self) -> bool:
        """Whether visitors can log in to this console itself."""
        return self._resolve[0] is None and any(user.password for user in self.users.values())

    async def visitor(self, request: Request, origin: Whence) -> Visitor | None:
        """Return who asks, None for nobody. Raises ``Denied`` for somebody who has no access at all."""
        resolve, access = self._resolve
        if resolve is not None:
            return await self._resolve_visitor(request, resolve, access)
        names = request.headers.getlist(self._header) if self._header is not None and origin.trusted else []
        if len(names) > 1:  # a proxy that adds its header to a browser's lets the browser choose
            text = f"The header {self._header} is there {len(names)} times: the proxy must remove what browsers send."
            raise Denied(400, "Two users", text)
        if names and (name := names[0].strip()):
            account = self.users.get(name)
            return self._as(storable_text(name), account.role if account is not None else self._role)
        if self.authenticates:
            if (authorization := request.headers.get("authorization", "")).lower().startswith("basic "):
                return await self._by_password(authorization, origin)
            login = self.login(request, origin)
            user = None if login is None else self.users.get(login.user)
            if login is None or user is None:
                return None
            return Visitor(user.name, user.role, self.logins.token(login.nonce), leaves=True)
        if self.token is not None:
            return self._by_token(request, origin)
        return self._as("anonymous", self._role or "admin")

    def _by_token(self, request: Request, origin: Whence) -> Visitor | None:
        """Return the visitor whom the token proves, in a program's header or in a cookie given for it."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        bearer = scheme.lower() == "bearer" and self.is_token(token.strip())
        login = None if bearer else self.login(request, origin)
        if not bearer and login is None:
            return None
        if not (origin.trusted or is_local(request)):
            raise Denied(403, "Only on this machine", _LOCAL)
        form = "" if login is None else self.logins.token(login.nonce)
        return Visitor(HOLDER, self._role or "admin", form, leaves=login is not None, by_password=bearer)

    def is_token(self, text: str) -> bool:
        """Return whether a text is this console's token."""
        token = "" if self.token is None else self.token.text
        return bool(token) and hmac.compare_digest(text.encode("utf-8", "surrogatepass"), token.encode())

    def token_needed(self, request: Request) -> TokenNeededError:
        """Return the answer to a request without the token; the file of it is named on its machine only."""
        file = self.token.file if self.token is not None and is_local(request) else None
        return TokenNeededError("" if file is None else f"On this machine it is in {file}.")

    def cookie(self, name: str) -> str:
        """Return a new cookie for a user who has logged in, or for the holder of the token."""
        return self.logins.cookie(name, self._proof(name))

    def _proof(self, name: str) -> str:
        """Return what the logins of a user depend on, "" for somebody who cannot log in."""
        if self.token is not None:
            return self.token.text if name == HOLDER else ""
        user = self.users.get(name)
        return "" if user is None else user.password

    async def _by_password(self, authorization: str, origin: Whence) -> Visitor | None:
        """Return the user whose name and password a program sends with its request, None if they are wrong.

        No cookie speaks for it, so no other site's page can send it: its acts need no token.
        """
        try:
            name, _, password = base64.b64decode(authorization[6:], validate=True).decode().partition(":")
        except ValueError:
            return None
        user = await self.authenticate(name, password, origin.address, again=True)
        return None if user is None else Visitor(user.name, user.role, "", by_password=True)

    async def authenticate(
        self, name: str, password: str, address: str, *, again: bool = False
    ) -> User | None:
        """Return the user with this name and password; None if one of them is wrong, after the same time.

        ``again``: programs send both with each request, so a password that was right counts as proven for a
        while. Raises ``TooManyAttemptsError``.
        """
        if (user := self._user_by_proof(name, password, address, again=again)) is not None:
            return user
        async with self._hashing:
            # Of attempts side by side, each finds the failures, and the proof, of those before it.
            if (user := self._user_by_proof(name, password, address, again=again)) is not None:
                return user
            user = self.users.get(name)
            right = await asyncio.to_thread(accepts, user, password)
            if user is None or not right:
                self.limits.count_failure(name, address)
                return None
            self.limits.forget_failures(name, address)
            if again:
                self._proven.add(user, password)
            return user

    def _user_by_proof(self, name: str, password: str, address: str, *, again: bool) -> User | None:
        """Return the user whose password is proven. Raises ``TooManyAttemptsError``."""
        if wait := self.limits.wait(name, address):
            raise TooManyAttemptsError(wait)
        user = self.users.get(name)
        return user if again and user is not None and self._proven.holds(user, password) else None

    def login(self, request: Request, origin: Whence) -> Login | None:
        """Return the login that a request's cookie proves."""
        return self.logins.read(request.cookies.get(origin.cookie_name(COOKIE), ""), self._proof)

    async def _resolve_visitor(
        self, request: Request, resolve: ResolveUser, access: ResolveAccess | None
    ) -> Visitor | None:
        user = await _await_if_awaitable(resolve(request))
        if user is None:
            return None
        role = self._role or "viewer" if access is None else await _await_if_awaitable(access(user))
        return self._as(storable_text(str(user)), None if role is None else role_of(role, "resolve_access"))

    def _as(self, name: str, role: Role | None) -> Visitor:
        if role is None:
            raise Denied(403, "No access", f"{name} has no role in this console.")
        return Visitor(name, role, self.logins.token(f"user {name}"))

    def admit(self, route: Route, request: Request, visitor: Visitor | None) -> Visitor:
        """Return who may use a route, as far as can be said before its form is read. Raises ``Denied`` for
        anybody else.

        A request that may change something must come from the console's own pages.
        """
        caller = visitor or NOBODY
        if visitor is None and route.role != "everyone":
            if self.token is not None:
                raise self.token_needed(request)
            if self.has_login:
                raise LoginNeededError(401, "Log in", "Log in to use the console.")
            raise Denied(401, "Nobody is logged in", "This console does not know who you are.")
        if not caller.may(route.role):
            text = f"This needs the role {route.role}; {caller.name} is {caller.role}."
            raise Denied(403, f"For role {route.role}", text)
        if route.writes and request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
            text = "The browser says that another site's page sent this request."
            raise Denied(403, "From another site", text)
        return caller

    def examine(
        self, route: Route, request: Request, visitor: Visitor | None, form: Mapping[str, str]
    ) -> None:
        """Raise ``Denied`` for a request that may change something, and does not carry the token of its
        login.
        """
        if not route.writes or route.role == "everyone":
            return  # the login page's form is bound to no login: whoever is logged in may log in as another user
        if visitor is not None and visitor.by_password:
            return
        token = (request.headers.get(TOKEN_HEADER) or form.get("csrf", "")).encode("utf-8", "surrogatepass")
        if visitor is None or not hmac.compare_digest(token, visitor.token.encode()):
            text = "The form's token does not belong to your login. Open the page again, and repeat it there."
            raise Denied(403, "An old page", text)


async def _await_if_awaitable(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def body_of(request: Request, most: int = MOST_FORM) -> bytes:
    """Return the body of a request. Raises ``Denied`` if it is too long, too slow, or broken off."""
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise Denied(413, "Too long", f"This form has at most {most:,} bytes.")
                parts.append(part)
    except ClientDisconnect:
        raise BrokenOffError from None
    except TimeoutError:
        raise Denied(408, "Too slow", f"A request arrives within {BODY:g} seconds.") from None
    return b"".join(parts)
