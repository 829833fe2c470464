"""What a request of the console is made of: the route that it takes, who asks, and where the links begin.

A ``Route`` declares who may use it. Nothing can be reached that does not say so: see ``access``.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from starlette.requests import Request
from starlette.responses import Response

from makegood.client.client import Client
from makegood.console.reads import Reads
from makegood.console.users import ROLES, Role
from makegood.errors import ConfigError, MakegoodError

Kind = Literal["page", "act", "stream", "api", "file", "login"]
"""What a route answers: a page (or fragments of it), an act's outcome, events, JSON, a file, or the login."""

Audience = Literal["everyone", "viewer", "operator", "admin"]
"""Who may use a route: the role that is needed, or everyone, logged in or not."""


ANONYMOUS: Final = "anonymous"
"""The name of visitors where nobody logs in."""
KNOWN: Final = "makegood.known"
"""The key of an ASGI scope whose function is called when it is known who asks: the server then closes the
connections of strangers before this one.
"""


class Denied(MakegoodError):  # noqa: N818 - an answer, reads as a word
    """A request that is answered with an error page. ``status``: its HTTP status; ``title``: its heading.

    ``field``: the field of a form that is wrong; ``back``: the page that the form is on, below the console's
    own path; "" for each if that is not known.
    """

    def __init__(self, status: int, title: str, text: str, *, field: str = "", back: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.title = title
        self.field = field
        self.back = back


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks."""

    name: str
    """As the audit keeps it."""
    role: Role
    token: str
    """The token that this login's forms carry."""
    leaves: bool = False
    """Whether this console logged them in, so that it can log them out."""
    by_password: bool = False
    """Whether the request itself carried name and password."""

    def may(self, role: Audience) -> bool:
        """Return whether this visitor has a role, or a higher one."""
        return role == "everyone" or ROLES.index(self.role) >= ROLES.index(role)


NOBODY: Final = Visitor("", "viewer", "")
"""Who asks without a login; only routes for everyone answer."""


@dataclass(frozen=True, slots=True)
class Whence:
    """Where a request comes from, as far as the console believes it."""

    address: str
    """The address of the browser, or of the last proxy that is not trusted."""
    base: str
    """The path under which the console is reached, "" for the root: every link begins with it."""
    secure: bool
    """Whether the browser came over TLS."""
    trusted: bool
    """Whether a listed proxy passed the request on."""

    def cookie_name(self, cookie: str) -> str:
        """Return the name of a cookie; over TLS one that a browser takes from this host over TLS alone."""
        return cookie if not self.secure else f"__Secure-{cookie}" if self.base else f"__Host-{cookie}"

    @property
    def cookie(self) -> dict[str, Any]:
        """How a cookie of this console is kept: for its own paths, away from scripts, over TLS if there is
        TLS.

        Lax, not strict: a link in a mail or a chat leads to the page, not to the login, and no GET changes
        anything.
        """
        return {"path": self.base or "/", "secure": self.secure, "httponly": True, "samesite": "lax"}


@dataclass(frozen=True, slots=True)
class Visit:
    """One request."""

    request: Request
    visitor: Visitor
    origin: Whence
    id: str
    """The request's id, as logs and the audit show it."""
    client: Client
    reads: Reads
    form: Mapping[str, str]
    """The fields of a form that was posted."""

    def field(self, name: str) -> str:
        """Return a field of the form, "" if it is missing."""
        return self.form.get(name, "").strip()

    @property
    def query(self) -> Mapping[str, str]:
        """The query string; of a name that is repeated, the last value."""
        return dict(self.request.query_params)

    @property
    def params(self) -> Mapping[str, str]:
        """The parts of the path that the route names."""
        parameters: Mapping[str, Any] = self.request.path_params
        return parameters


Respond = Callable[[Visit], Awaitable[Response]]
Context = Callable[[Reads, Mapping[str, str]], Awaitable[Any]]
"""Reads what a page shows, from the page's query and the named parts of its path."""
Leads = Callable[[Reads, Mapping[str, str]], Awaitable[str]]
"""Returns the path of the page that a query means instead, "" for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One route. ``role`` is who may use it; a route that changes anything is a POST, and an act, a login or
    JSON.
    """

    path: str
    role: Audience
    kind: Kind
    respond: Respond | None = None
    """Answers; None for a page, which its ``context`` and ``template`` make."""
    methods: tuple[str, ...] = ("GET",)
    context: Context | None = None
    template: str = ""
    leads: Leads | None = None
    """Where a browser that opens the page is sent instead; fragments and live pages are not."""
    here: str = ""
    """The entry of the navigation that the page belongs to."""

    def __post_init__(self) -> None:
        """Raise ``ConfigError`` for a route that no visitor could be examined for."""
        if self.role not in ("everyone", *ROLES):
            raise ConfigError(
                f"route {self.path}: role={self.role!r} is none of everyone, {', '.join(ROLES)}"
            )
        if self.writes != (self.kind == "act") and self.kind not in ("api", "login"):
            raise ConfigError(f"route {self.path}: operator commands are POST requests, and no other page is")
        if self.writes and self.role == "viewer" and self.kind != "login":
            raise ConfigError(f"route {self.path}: a viewer changes nothing")
        if (self.respond is None) == (self.context is None):
            raise ConfigError(f"route {self.path}: give respond=, or context= with template=")

    @property
    def writes(self) -> bool:
        """Whether it may change anything."""
        return self.methods != ("GET",)


def page(
    path: str,
    context: Context,
    template: str,
    *,
    here: str = "",
    role: Audience = "viewer",
    leads: Leads | None = None,
) -> Route:
    """Return the route of a page: ``template`` drawn from what ``context`` reads, whole or by
    ``?fragment=ID,ID``.
    """
    return Route(
        path=path, role=role, kind="page", context=context, template=template, here=here, leads=leads
    )


def act(path: str, respond: Respond, *, role: Audience = "operator") -> Route:
    """Return the route of an act: a form posted to it changes something."""
    return Route(path=path, role=role, kind="act", respond=respond, methods=("POST",))


def number_in(text: str) -> int | None:
    """Return a whole number as a form or a path holds it; None for anything else, and for one that no row
    has.

    >>> number_in("12"), number_in("-1"), number_in("1" * 19)
    (12, None, None)
    """
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None
