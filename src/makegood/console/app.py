"""The application: opens the store, finds the route, lets ``access`` admit the visitor, and answers.

It is plain ASGI around Starlette's requests and responses: nothing reaches a route but through ``_answer``.
"""

import asyncio
import logging
import secrets
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self
from urllib.parse import parse_qs, parse_qsl, quote, urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import compile_path
from starlette.types import Message, Receive, Scope, Send

from makegood.base.arguments import judge_calls
from makegood.base.clock import Clock, SystemClock
from makegood.base.text import storable_text
from makegood.client.client import Client
from makegood.client.operators import under_request
from makegood.console.access import (
    MOST_FORM,
    MOST_LOGIN,
    Access,
    BrokenOffError,
    LoginNeededError,
    ResolveAccess,
    ResolveUser,
    TokenNeededError,
    body_of,
)
from makegood.console.acts import TaskActs, task_of
from makegood.console.api import ROOT, Api
from makegood.console.bulk_forms import BulkForms
from makegood.console.covering import Covering
from makegood.console.drawing import DrawingThread
from makegood.console.elements import cut
from makegood.console.live import LIVE_BYTES, LivePages
from makegood.console.login import LoginPages
from makegood.console.options import ConsoleOptions
from makegood.console.outcomes import BY_SCRIPT, Outcomes, Toast
from makegood.console.outcomes import COOKIE as SAID
from makegood.console.pages.alerts import needing
from makegood.console.reads import SHARED, Reads
from makegood.console.redaction import Redact, Redaction
from makegood.console.refused_forms import refused_form
from makegood.console.render import Renderer, Shell, theme_of
from makegood.console.routes import routes
from makegood.console.schedule_forms import ScheduleForms
from makegood.console.security_headers import FRESH, AccessLog, headers_of
from makegood.console.static_files import StaticFiles
from makegood.console.task_values import TaskValues
from makegood.console.users import Role, User
from makegood.console.visits import KNOWN, NOBODY, Denied, Route, Visit, Visitor, Whence, act
from makegood.errors import (
    ActRefusedError,
    AlertNotFoundError,
    BulkNotFoundError,
    ConfigError,
    KeyConflict,
    LaneTakenError,
    PayloadError,
    ScheduleNotFoundError,
    SchemaMismatchError,
    SignalRefused,
    StoreUnavailableError,
    TaskNotFoundError,
)
from makegood.payload.envelopes import Codec

log = logging.getLogger("makegood.console")

_NOT_FOUND = (AlertNotFoundError, BulkNotFoundError, ScheduleNotFoundError, TaskNotFoundError)

_TOKEN: Final = secrets.token_hex(16)
"""Stands in a page that several visitors share where each has a token of their own."""
MOST_ADDRESS: Final = 32_768
"""The most bytes of an address: its path and its query."""
MOST_PARAMETERS: Final = 1000
"""The most parameters of a query."""
OPEN_TO_ALL: Final = (
    "Nobody logs in here: whoever reaches this address may do everything that these pages can do."
)


@judge_calls(ConfigError)
def create_app(
    store: str | Client,
    *,
    users: Mapping[str, User] | None = None,
    resolve_user: ResolveUser | None = None,
    resolve_access: ResolveAccess | None = None,
    proxies: Iterable[str] = (),
    user_header: str | None = None,
    role: Role | None = None,
    redact: Redact | None = None,
    secret: str | None = None,
    base: str = "",
    insecure: bool = False,
    token: str | None = None,
    trace_url: str | None = None,
    clock: Clock | None = None,
    codec: Codec | None = None,
) -> "ConsoleApp":
    """Return the console as an ASGI application, to serve or to mount under any path.

    ``store``: a URL, opened and closed with the application; or an open client, which stays its owner's.

    Who may use it, one of: ``resolve_user(request)`` of the embedding application, which returns the user or
    None, with ``resolve_access(user)``, which returns "viewer", "operator", "admin" or None;
    ``user_header``, in which one of ``proxies`` (addresses or networks) names the user; ``users``, who log
    in with passwords. ``role``: the role of a user who has none otherwise. Without any of these it answers
    on this machine whoever has the ``token``, by default the one in this user's private file; with
    ``insecure``, everybody.

    ``redact(path, value)`` returns what people see of a field of a payload, after the default rule for names
    such as "password". ``secret`` signs logins; processes behind one address share it. ``base``: the path
    under which a proxy serves the console, unless the proxy sends ``X-Forwarded-Prefix``. ``trace_url``: the
    address of a trace where you keep them, such as "https://jaeger.example/trace/{trace}"; the page of a
    task then links to its trace. ``codec``: decodes inputs and results for the pages of everybody who may
    log in; None: they are shown encoded. Raises ``ConfigError`` for what contradicts itself.
    """
    options = ConsoleOptions(
        users=users or {},
        proxies=tuple(proxies),
        user_header=user_header,
        role=role,
        base=base,
        secret=secret,
        token=token,
        insecure=insecure,
        trace_url=trace_url,
        codec=codec,
    )
    return ConsoleApp(store, options, clock, Redaction(redact), (resolve_user, resolve_access))


class ConsoleApp:
    """The console as an ASGI application. ``async with app`` opens and closes its store, as its lifespan
    does.

    A mounted application gets no lifespan from most frameworks: then its first request opens the store.

    ``hooks``: those of an embedding application, which say who a visitor is and what they may do.
    """

    def __init__(
        self,
        store: str | Client,
        options: ConsoleOptions,
        clock: Clock | None = None,
        redaction: Redaction | None = None,
        hooks: tuple[ResolveUser | None, ResolveAccess | None] = (None, None),
    ) -> None:
        clock, redaction = clock or SystemClock(), redaction or Redaction()
        self.access = Access(clock, options, hooks)
        if not isinstance(store, str | Client):
            raise ConfigError(
                f"store={store!r}: a URL, such as 'sqlite:///shop.db', or an open makegood.Client"
            )
        self._owns_store = isinstance(store, str)
        self.client = Client(store, codec=options.codec) if isinstance(store, str) else store
        self._reads = Reads(self.client, clock, share=SHARED, codec=options.codec)
        self._log = AccessLog(clock)
        self._renderer = Renderer(files := StaticFiles(), redaction, trace_url=options.trace_url)
        self.routes: Sequence[Route] = ()
        self._patterns: list[tuple[Any, Route]] = []
        self._outcomes = Outcomes(self.access.logins, self._renderer)
        self._thread = DrawingThread()
        self.live = LivePages(self.client, self._reads, self._draw_for_role, self._thread)
        self._login, acts = LoginPages(self.access, self._renderer), TaskActs(self._outcomes)
        self.answer(
            routes(
                files,
                self._login,
                acts,
                BulkForms(self._outcomes),
                *ScheduleForms(self._outcomes).routes(),
                *Api(redaction, self._thread, covering := Covering(redaction, self._thread)).routes(),
                TaskValues(covering).route(),
                self.live.route(),
                act("/tasks/{id}/payloads", self.show_payloads, role="admin"),
            )
        )
        self._opening = asyncio.Lock()
        self._open = not self._owns_store

    def answer(self, routes: Sequence[Route]) -> None:
        """Answer these routes, and no others."""
        self.routes = routes
        self._patterns = [(compile_path(route.path), route) for route in routes]

    # -- life ------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open the store, if this application was given a URL. Raises ``StoreUnavailableError``,
        ``SchemaMismatchError``.
        """
        async with self._opening:
            if not self._open:
                await self.client.open()
                self._open = True

    async def close(self) -> None:
        """Close the store, if this application opened it."""
        async with self._opening:
            await self.live.close()
            self._thread.close()
            if self._owns_store and self._open:
                self._open = False
                await self.client.close()

    def end_streams(self) -> None:
        """End live streams: the process is about to end."""
        self.live.end()

    async def __aenter__(self) -> Self:
        """Open the store."""
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the store."""
        await self.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or follow the server's lifespan."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._respond(Request(scope, receive), send)
        else:
            raise ConfigError(f"the console answers HTTP, not {scope['type']}")

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while (await receive())["type"] == "lifespan.startup":
            try:
                await self.open()
            except Exception as failure:  # noqa: BLE001 - the server reports it
                await send({"type": "lifespan.startup.failed", "message": str(failure)})
                return
            await send({"type": "lifespan.startup.complete"})
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})

    # -- requests --------------------------------------------------------------------------------------------

    async def _respond(self, request: Request, send: Send) -> None:
        """Answer a request, with the headers that every answer has, and log it."""
        began = self._log.begin()
        exchange = _Exchange(request, self.access.proxies.origin(request), _number())
        status = 500

        async def send_safely(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(raw=message["headers"])
                for name, value in headers_of(exchange.origin, request).items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", FRESH)
                headers["x-request-id"] = exchange.id
            await send(message)

        try:
            response = await self._answer(exchange)
            await response(request.scope, request.receive, send_safely)
        finally:
            self._log.end(began, status, exchange.fields())

    async def _answer(self, exchange: "_Exchange") -> Response:
        """Answer a request; what goes wrong is an answer, too."""
        try:
            return await self._admit(exchange)
        except (TokenNeededError, LoginNeededError) as challenge:
            return self._entrance(exchange, challenge)
        except BrokenOffError as interruption:
            return Response(status_code=interruption.status)
        except (*_NOT_FOUND, Denied, ActRefusedError, SignalRefused, ConfigError, PayloadError) as denial:
            return self._problem(exchange, denial)
        except (StoreUnavailableError, SchemaMismatchError) as away:
            log.warning("request %s: the store cannot be used: %s", exchange.id, away)
            return self._problem(exchange, away)
        except Exception:
            log.exception("request %s failed", exchange.id)
            text = f"The log of the console says why: look for request {exchange.id}."
            return self._problem(exchange, Denied(500, "This failed", text))

    def _entrance(self, exchange: "_Exchange", challenge: TokenNeededError | LoginNeededError) -> Response:
        """Answer a visitor whom the console does not know: a person gets a form, a program the problem."""
        if isinstance(challenge, LoginNeededError):
            if exchange.kind in ("api", "stream"):
                return self._problem(exchange, challenge)
            return RedirectResponse(
                f"{exchange.origin.base}/login?next={quote(_back(exchange), safe='')}", 303
            )
        if exchange.kind != "page" or exchange.request.headers.get(BY_SCRIPT):
            return self._problem(exchange, challenge)
        return self._login.form(exchange.request, exchange.origin, _back(exchange))

    async def _admit(self, exchange: "_Exchange") -> Response:
        """Find the route of a request, admit the visitor, and answer. Raises ``Denied``."""
        request, origin = exchange.request, exchange.origin
        _refuse_long(request.scope["path"], request.scope["query_string"].decode("latin-1"))
        path = _path(request, origin)
        exchange.kind = "api" if path.startswith(f"{ROOT}/") else "page"
        route, refusal = None, Denied(404, "Not found", "There is no such page.")
        try:
            route, request.scope["path_params"] = self._find_route(path, request.method)
        except _WrongMethodError as wrong:
            refusal = wrong
        if route is not None:
            exchange.kind = route.kind
        if exchange.kind in ("page", "login") and request.method == "GET":
            response = self._login.by_link(request, origin, path)
            if response is not None:
                return response
        caller = None if exchange.kind == "file" else await self.access.visitor(request, origin)
        exchange.visitor = caller or NOBODY
        if caller is not None and KNOWN in request.scope:
            request.scope[KNOWN]()
        if route is None:
            is_stranger = caller is None and self.access.token is not None
            raise self.access.token_needed(request) if is_stranger else refusal
        visitor = self.access.admit(route, request, caller)  # before its body is read
        form = {}
        if route.writes and route.kind != "api":
            form = _fields(await body_of(request, MOST_FORM if caller else MOST_LOGIN))
        self.access.examine(route, request, caller, form)
        if route.kind == "act":
            exchange.form = form
        visit = Visit(request, visitor, origin, exchange.id, self.client, self._reads, form)
        if route.kind != "file":
            await self.open()
        if route.respond is None:
            return await self._page(route, visit)
        try:
            with under_request(visit.id):
                return await route.respond(visit)
        finally:
            if route.kind in ("act", "api") and route.writes:
                self._reads.forget()  # whatever it changed, the next page shows it

    def _find_route(self, path: str, method: str) -> tuple[Route | None, dict[str, Any]]:
        """Return the route of a path, and the parts of the path that it names. Raises ``Denied``."""
        methods: set[str] = set()
        for (pattern, _, convertors), route in self._patterns:
            if (match := pattern.match(path)) is None:
                continue
            if ("GET" if method == "HEAD" else method) in route.methods:
                parts = match.groupdict()
                return route, {name: convertors[name].convert(text) for name, text in parts.items()}
            methods.update(route.methods)
        if methods:
            raise _WrongMethodError(method, sorted(methods))
        return None, {}

    async def _draw_for_role(self, path: str, query: str, role: Role, base: str) -> str:
        """Draw a page that somebody watches as a visitor of this role sees it, whoever it is."""
        _refuse_long(path, query)
        route, parts = self._find_route(path or "/", "GET")
        if route is None or route.context is None or not Visitor("", role, "").may(route.role):
            raise Denied(404, "Not found", "There is no such page.")
        parameters = dict(parse_qsl(query, keep_blank_values=True))
        parameters.pop("fragment", None)
        return await self._draw_shared(route, {**parameters, **parts}, role, base)

    async def _draw_shared(self, route: Route, query: Mapping[str, str], role: Role, base: str) -> str:
        """Draw a page for all visitors of a role, who share it for a second; forms carry ``_TOKEN``."""

        async def draw() -> str:
            context = await self._context(route, query)
            visitor, alerts = Visitor("", role, _TOKEN), await needing(self._reads)
            shell = self._shell(base, visitor, here=route.here, alerts=alerts)
            return await self._draw(shell, route.template, context)

        return await self._reads.share(("drawn", route.path, *sorted(query.items()), role, base), draw)

    async def _context(self, route: Route, query: Mapping[str, str]) -> Any:
        """Read what a page shows. Raises ``Denied`` for a route without a page."""
        if route.context is None:
            raise Denied(404, "Not found", "There is no such page.")
        return await route.context(self._reads, query)

    async def _draw(self, shell: Shell, template: str, context: Any) -> str:
        """Draw a page off the loop. ``context``: what it shows, or a function that returns that."""
        return await self._thread.run(
            lambda: self._renderer.page(shell, template, context() if callable(context) else context)
        )

    async def _page(self, route: Route, visit: Visit) -> Response:
        """Draw a page, or the fragments of it that ``?fragment=`` names."""
        query = {**visit.query, **visit.params}
        if names := [name for name in query.pop("fragment", "").split(",") if name]:
            html = await self._draw_shared(route, query, visit.visitor.role, visit.origin.base)
            if not (parts := await self._thread.run(lambda: cut(html, names))):
                raise Denied(404, "Not found", "This page has no such part (any more).")
            return HTMLResponse("\n".join(parts.values()).replace(_TOKEN, visit.visitor.token))
        if route.leads is not None and (path := await route.leads(visit.reads, query)):
            return RedirectResponse(visit.origin.base + path, 303)
        context = await self._context(route, query)
        toast, raw_query = self._outcomes.take(visit.request, visit.origin), visit.request.url.query
        shell = self._shell(
            visit.origin.base,
            visit.visitor,
            theme=theme_of(visit.request),
            here=route.here,
            alerts=await needing(visit.reads),
            toast=toast,
            events=_path(visit.request, visit.origin) + (f"?{raw_query}" if raw_query else ""),
        )
        text = await self._draw(shell, route.template, context)
        if len(text) > LIVE_BYTES:  # it is not drawn again by itself
            text = text.replace(' data-page="', ' data-still="', 1)
        response = HTMLResponse(text)
        if toast is not None:
            response.delete_cookie(visit.origin.cookie_name(SAID), **visit.origin.cookie)
        return response

    async def show_payloads(self, visit: Visit) -> Response:
        """Answer with a task's page whose payloads are whole, once; the audit keeps the look."""
        task = visit.client.task(visit.params["id"])
        await task_of(visit)
        reason = storable_text(visit.field("reason"))
        act = visit.client.acts.new(storable_text(visit.visitor.name), reason)
        await visit.client.store.alerts.note_look(
            act, task.number, "its inputs and results, secret values included"
        )
        route, parts = self._find_route(f"/tasks/{task.id}", "GET")
        assert route is not None  # the table has the page of a task
        theme = theme_of(visit.request)
        shell = self._shell(visit.origin.base, visit.visitor, theme=theme, here=route.here, whole=True)
        return HTMLResponse(await self._draw(shell, route.template, await self._context(route, parts)))

    def _shell(self, base: str, visitor: Visitor, **more: Any) -> Shell:
        paths = frozenset(route.path for route in self.routes if route.kind == "page")
        warning = OPEN_TO_ALL if self.access.insecure else ""
        return Shell(base, visitor, store=self.client.store.label, warning=warning, paths=paths, **more)

    def _problem(self, exchange: "_Exchange", failure: Exception) -> Response:
        """Return the answer for a request that cannot be carried out: a page, or JSON for a program."""
        status, title = _status(failure)
        headers = {"retry-after": "5"} if status == 503 else {}
        if isinstance(failure, TokenNeededError):
            headers["www-authenticate"] = "Bearer"
        if isinstance(failure, _WrongMethodError):
            headers["allow"] = failure.allowed
        if exchange.kind in ("api", "stream"):
            body = {"type": "about:blank", "title": title, "status": status, "detail": str(failure)}
            return JSONResponse(body, status, headers, media_type="application/problem+json")
        wrong, back = getattr(failure, "field", ""), getattr(failure, "back", "")
        form = None if status in (401, 403) else refused_form(exchange.form, str(failure), wrong)
        if exchange.request.headers.get(BY_SCRIPT):
            toast = {"toast": Toast("need", title, str(failure))}
            if form is not None and form.wrong:
                headers["makegood-field"] = form.wrong
            return HTMLResponse(
                self._renderer.page(Shell(base=exchange.origin.base), "toast.html", toast), status, headers
            )
        path = _path(exchange.request, exchange.origin)
        context = {
            "status": status, "title": title, "text": str(failure), "form": form, "path": path, "back": back,
        }  # fmt: skip
        shell = self._shell(exchange.origin.base, exchange.visitor, theme=theme_of(exchange.request))
        return HTMLResponse(self._renderer.page(shell, "problem.html", context), status, headers)


class _WrongMethodError(Denied):
    """An address that is used by other methods. ``allowed``: these."""

    def __init__(self, method: str, methods: Sequence[str]) -> None:
        super().__init__(405, "Not this way", f"{method} is not how this address is used.")
        self.allowed = ", ".join(methods)


@dataclass(slots=True)
class _Exchange:
    """A request, and what is known of it so far."""

    request: Request
    origin: Whence
    id: str
    kind: str = "page"
    visitor: Visitor = NOBODY
    form: Mapping[str, str] = field(default_factory=dict)
    """Of an act: what its form holds."""

    def fields(self) -> dict[str, str]:
        """Return what the access log says of it."""
        role = self.visitor.role if self.visitor.name else ""
        return {
            "request": self.id, "method": self.request.method, "path": self.request.scope["path"], "address": self.origin.address,
            "user": self.visitor.name, "role": role,
        }  # fmt: skip


def _back(exchange: "_Exchange") -> str:
    """Return where a browser is led once it is logged in."""
    path = _path(exchange.request, exchange.origin)
    query = urlencode(
        [pair for pair in parse_qsl(exchange.request.url.query, keep_blank_values=True) if pair[0] != "token"]
    )
    return (f"{path}?{query}" if query else path) if exchange.request.method == "GET" else "/"


def _number() -> str:
    """Return the id of a request: it is that of its acts in the audit, too."""
    return str(uuid.UUID(bytes=secrets.token_bytes(16), version=4))


def _status(failure: Exception) -> tuple[int, str]:
    """Return the status and the heading of a failure's page."""
    match failure:
        case Denied():
            return failure.status, failure.title
        case AlertNotFoundError() | BulkNotFoundError() | ScheduleNotFoundError() | TaskNotFoundError():
            return 404, "Not found"
        case ActRefusedError() | KeyConflict() | LaneTakenError() | SignalRefused():
            return 409, "Refused"
        case ConfigError() | PayloadError():
            return 400, "Not understood"
        case _:
            return 503, "The store does not answer"


def _path(request: Request, origin: Whence) -> str:
    """Return the path below the console's own."""
    path: str = request.scope["path"]
    for before in (request.scope.get("root_path", "").rstrip("/"), origin.base):
        if before and path.startswith(f"{before}/"):
            path = path[len(before) :]
        elif before and path == before:
            path = "/"
    return path or "/"


def _refuse_long(path: str, query: str) -> None:
    """Raise ``Denied`` for an address that takes long to read."""
    if len(path) + len(query) > MOST_ADDRESS or query.count("&") >= MOST_PARAMETERS:
        text = f"An address has at most {MOST_ADDRESS:,} bytes and {MOST_PARAMETERS:,} parameters."
        raise Denied(414, "Too long", text)


def _fields(body: bytes) -> dict[str, str]:
    """Return the fields of a form. Raises ``Denied`` for a body that is none."""
    try:
        text = body.decode("ascii")
        fields = parse_qs(
            text, keep_blank_values=True, strict_parsing=bool(text), max_num_fields=2000, errors="strict"
        )
    except ValueError:
        raise Denied(400, "Not understood", "The request does not hold a form.") from None
    return {name: "\n".join(values) if len(values) > 1 else values[0] for name, values in fields.items()}
