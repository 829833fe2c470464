"""Serves the stage: one page, its elements that change, and its buttons.

On 127.0.0.1 only. The page opens for the token in the printed address, which becomes a cookie, as the console's does; each button needs
the token, too. A program sends it as a bearer.
"""

import asyncio
import hmac
import json
import secrets
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from markupsafe import Markup
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from makegood.console.access import body_of
from makegood.console.elements import cut
from makegood.console.limited_server import LimitedServer
from makegood.console.redaction import Redaction
from makegood.console.render import Renderer, Shell
from makegood.console.security_headers import FOREVER, FRESH, HEADERS
from makegood.console.static_files import StaticFiles
from makegood.console.visits import Denied
from makegood.errors import ConfigError

from . import acts
from .chaos import Event
from .director import Director
from .scene import Watcher
from .stage_ladder import Ladder, at_console
from .visitor import RefusedError

HERE: Final = Path(__file__).parent / "page"
PARTS: Final = ("switches", "score", "broker", "wall", "dials", "live", "feed", "acts", "customers")
"""The elements of the page that change, by their ids."""
LOOK_EVERY: Final = 0.35
BODY_LIMIT: Final = 4096
MOST_STREAMS: Final = 20
"""Pages that are live at the same time."""
LOCAL: Final = ("127.0.0.1", "localhost")


class Stage:
    """The stage's pages. ``token``: what its buttons must send; ``closing`` ends the streams."""

    def __init__(self, director: Director, watcher: Watcher, ladder: Ladder) -> None:
        self.token = secrets.token_urlsafe(24)
        self.closing = False
        self.streams = 0
        self._director = director
        self._watcher = watcher
        self._ladder = ladder
        self._theirs, self._ours = StaticFiles(), StaticFiles(HERE)
        self._renderer = Renderer(self._theirs, Redaction(), folders=(HERE,))
        self._reading = asyncio.Lock()
        self._read = 0.0
        self.app = Starlette(
            routes=[
                Route("/", self._guarded(self._opened(self._page))),
                Route("/fragments", self._guarded(self._opened(self._fragments))),
                Route("/events", self._guarded(self._opened(self._events))),
                Route("/static/{hash}/{file:path}", self._guarded(self._static)),
                *(
                    Route(f"/{name}", self._guarded(self._button(press)), methods=["POST"])
                    for name, press in self.buttons().items()
                ),
            ]
        )

    def buttons(self) -> dict[str, Callable[[Mapping[str, str]], Awaitable[None]]]:
        """What can be pressed, by path."""
        director = self._director

        async def all_of_them(form: Mapping[str, str]) -> None:
            if form.get("do") == "kill":
                await director.kill_all()
            elif form.get("do") == "start":
                await director.start_all()
            else:
                raise RefusedError(f"no button is called {form.get('do')!r}")

        async def switch(form: Mapping[str, str]) -> None:
            director.settings.put(form.get("switch", ""), form.get("value", ""))
            await director.turn()

        async def order(form: Mapping[str, str]) -> None:
            director.follows = director.order(form.get("kind", ""))

        async def act(form: Mapping[str, str]) -> None:
            number = form.get("number", "")
            await acts.begin(director, int(number) if number.isdecimal() else 0)

        async def answer(form: Mapping[str, str]) -> None:
            if form.get("yes") not in ("yes", "no"):
                raise RefusedError(f"no answer is called {form.get('yes')!r}")
            await director.visitor.answer(form.get("order", ""), yes=form["yes"] == "yes")

        async def settle(_: Mapping[str, str]) -> None:
            await director.visitor.settle()
            director.tell(Event("settled", "payments", 0, "the nightly settlement was triggered"))

        return {
            "process": lambda form: director.press(form.get("name", ""), form.get("do", "")),
            "dial": lambda form: director.dial(form.get("service", ""), form.get("fault", "")),
            "all": all_of_them, "switch": switch, "order": order, "act": act,
            "answer": answer, "settle": settle,
        }  # fmt: skip

    # -- what every request passes -------------------------------------------------------------------------------------

    def _guarded(
        self, serve: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            try:
                response = await serve(request) if _is_ours(request) else _refusal(403, "not from here")
            except RefusedError as error:
                response = self._refused(request, str(error))
            except Denied as denial:
                response = _refusal(denial.status, str(denial))
            for name, value in HEADERS.items():
                response.headers.setdefault(name, value)
            response.headers.setdefault("cache-control", FRESH)
            return response

        return respond

    def _opened(
        self, serve: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            if self._is_token(request.query_params.get("token", "")):
                left = urlencode([pair for pair in request.query_params.multi_items() if pair[0] != "token"])
                response = RedirectResponse(
                    f"/?{left}" if left else "/", 303, {"referrer-policy": "no-referrer"}
                )
                response.set_cookie(_cookie(request), self.token, httponly=True, samesite="strict")
                return response
            bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
            if self._is_token(request.cookies.get(_cookie(request), "")) or self._is_token(bearer):
                return await serve(request)
            return Response("Open the address that the demo printed: it holds the token of this page.\n", 401)

        return respond

    def _is_token(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(errors="replace"), self.token.encode())

    @staticmethod
    def _refused(request: Request, text: str) -> Response:
        """Say why a button does nothing: to the script as JSON, to a form on a page of its own."""
        if "application/json" in request.headers.get("accept", ""):
            return _refusal(409, text)
        return Response(f"{text}\n\nGo back, and try again.\n", 409, media_type="text/plain")

    def _button(
        self, press: Callable[[Mapping[str, str]], Awaitable[None]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            body = await body_of(request, BODY_LIMIT)
            form = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
            if not self._is_token(form.get("token", "")):
                return _refusal(403, "this button needs the page's token: load the page again")
            await press(form)
            self._read = 0.0
            if "application/json" in request.headers.get("accept", ""):
                return Response(status_code=204)
            return RedirectResponse("/", 303)

        return respond

    # -- pages ---------------------------------------------------------------------------------------------------------

    async def _context(self, request: Request) -> dict[str, Any]:
        async with self._reading:  # one reading for all viewers
            if time.monotonic() - self._read >= LOOK_EVERY:
                await self._watcher.read()
                self._read = time.monotonic()
        look = self._watcher.look(request.query_params.get("order", ""))
        ladder = await self._ladder.draw(self._renderer, look["followed"])
        act_task = await self._ladder.path(self._director.act.order) if self._director.act.order else ""
        return {
            **look, "answer_within": ladder.answer_within, "console_at": partial(at_console, look["console"]), "ladder": ladder.html, "page": ladder.page, "task_path": act_task if self._director.act.waits_for_operator else ladder.path,
            "secret": self.token, "token": Markup('<input type="hidden" name="token" value="{}">').format(self.token), "css": self._ours.path("stage.css"), "js": self._ours.path("stage.js"),
        }  # fmt: skip

    async def _page(self, request: Request) -> Response:
        page = self._renderer.page(Shell(), "stage.html", await self._context(request))
        return Response(page, media_type="text/html")

    async def _parts(self, request: Request) -> dict[str, str]:
        return cut(self._renderer.page(Shell(), "stage.html", await self._context(request)), PARTS)

    async def _fragments(self, request: Request) -> Response:
        return JSONResponse(await self._parts(request))

    async def _events(self, request: Request) -> Response:
        if self.streams >= MOST_STREAMS:
            return _refusal(503, "too many pages of the stage are open: close some")

        async def changes() -> AsyncIterator[str]:
            self.streams += 1
            try:
                before: dict[str, str] = {}
                while not self.closing:
                    now = await self._parts(request)
                    parts = {name: part for name, part in now.items() if before.get(name) != part}
                    yield f"data: {json.dumps(parts)}\n\n" if parts else ": nothing new\n\n"
                    before = now
                    await asyncio.sleep(LOOK_EVERY)
            finally:
                self.streams -= 1

        return StreamingResponse(changes(), media_type="text/event-stream")

    async def _static(self, request: Request) -> Response:
        name, hash_ = request.path_params["file"], request.path_params["hash"]
        for files in (self._ours, self._theirs):
            if (file := files.find(hash_, name)) is not None:
                return Response(file.body, media_type=file.kind, headers={"cache-control": FOREVER})
        return _refusal(404, "there is no such file")


def _refusal(status: int, message: str) -> Response:
    return JSONResponse({"message": message}, status)


def _cookie(request: Request) -> str:
    """Return the name of the page's cookie: a browser sends those of all ports."""
    return f"makegood_stage_{(request.scope.get('server') or ('', 0))[1]}"


def _is_ours(request: Request) -> bool:
    """Whether a request comes from this machine, for this address, and, if it changes something, from this very page.

    The name in ``Host`` keeps out pages of the world whose name leads here.
    """
    host = request.headers.get("host", "")
    server = request.scope.get("server") or ("", 0)
    if request.client is None or request.client.host != "127.0.0.1":
        return False
    if host not in {f"{name}:{server[1]}" for name in LOCAL}:
        return False
    if request.method not in ("POST", "PUT", "PATCH", "DELETE"):
        return True
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    return request.headers.get("origin", f"http://{host}") in (f"http://{host}", "null")


@asynccontextmanager
async def serving(stage: Stage, port: int) -> AsyncIterator[str]:
    """Serve the stage on 127.0.0.1; yield its address, with its token. Raises ``ConfigError`` when the port is taken."""
    try:
        listening = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise ConfigError(
            f"the stage cannot listen on port {port}: {error.strerror}; pass another --port"
        ) from error
    server = LimitedServer("the stage", stage.app, listening, grace=1)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/?token={stage.token}"
    finally:
        stage.closing = True
        await server.end()
