"""Serves the stage: one page, its elements that change, and its buttons. On 127.0.0.1 only, and each button needs the page's token."""

import asyncio
import contextlib
import hmac
import json
import secrets
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl

import uvicorn
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from makegood.console.elements import cut
from makegood.console.redaction import Redaction
from makegood.console.render import Renderer, Shell
from makegood.console.security_headers import FOREVER, FRESH, HEADERS
from makegood.console.static_files import StaticFiles
from makegood.errors import ConfigError

from . import acts
from .director import Director, RefusedError
from .scene import Watcher
from .stage_ladder import Ladder

HERE: Final = Path(__file__).parent / "page"
PARTS: Final = ("switches", "score", "wall", "dials", "live", "feed", "acts", "customers")
"""The elements of the page that change, by their ids."""
LOOK_EVERY: Final = 0.35
BODY_LIMIT: Final = 4096
LOCAL: Final = ("127.0.0.1", "localhost")


class Stage:
    """The stage's pages. ``token``: what its buttons must send; ``closing`` ends the streams."""

    def __init__(self, director: Director, watcher: Watcher, ladder: Ladder) -> None:
        self.token = secrets.token_urlsafe(24)
        self.closing = False
        self._director = director
        self._watcher = watcher
        self._ladder = ladder
        self._theirs, self._ours = StaticFiles(), StaticFiles(HERE)
        self._renderer = Renderer(self._theirs, Redaction(), folders=(HERE,))
        self._reading = asyncio.Lock()
        self._read = 0.0
        self.app = Starlette(
            routes=[
                Route("/", self._guarded(self._page)),
                Route("/fragments", self._guarded(self._fragments)),
                Route("/events", self._guarded(self._events)),
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

        return {
            "process": lambda form: director.press(form.get("name", ""), form.get("do", "")),
            "dial": lambda form: director.dial(form.get("service", ""), form.get("fault", "")),
            "all": all_of_them, "switch": switch, "order": order, "act": act,
        }  # fmt: skip

    # -- what every request passes -------------------------------------------------------------------------------------

    def _guarded(
        self, serve: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            try:
                response = await serve(request) if _is_ours(request) else _refusal(403, "not from here")
            except RefusedError as refused:
                response = self._refused(request, str(refused))
            response.headers.update(HEADERS)
            response.headers.setdefault("cache-control", FRESH)
            return response

        return respond

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
            body = b""
            async for part in request.stream():
                body += part
                if len(body) > BODY_LIMIT:
                    return _refusal(413, "the form is too long")
            form = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
            if not hmac.compare_digest(form.get("token", "").encode(), self.token.encode()):
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
        drawn = await self._ladder.draw(self._renderer, look["followed"])
        act_task = await self._ladder.path(self._director.act.order) if self._director.act.order else ""
        return {
            **look, "ladder": drawn.html, "page": drawn.page, "task_path": act_task if self._director.act.waits_for_operator else drawn.path,
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
        async def changes() -> AsyncIterator[str]:
            before: dict[str, str] = {}
            while not self.closing:
                now = await self._parts(request)
                changed = {name: part for name, part in now.items() if before.get(name) != part}
                yield f"data: {json.dumps(changed)}\n\n" if changed else ": nothing new\n\n"
                before = now
                await asyncio.sleep(LOOK_EVERY)

        return StreamingResponse(changes(), media_type="text/event-stream")

    async def _static(self, request: Request) -> Response:
        name, hash_ = request.path_params["file"], request.path_params["hash"]
        for files in (self._ours, self._theirs):
            if (found := files.find(hash_, name)) is not None:
                return Response(found.body, media_type=found.kind, headers={"cache-control": FOREVER})
        return _refusal(404, "there is no such file")


def _refusal(status: int, message: str) -> Response:
    return JSONResponse({"message": message}, status)


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


class _Server(uvicorn.Server):
    """A server in a program that has signals of its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


@asynccontextmanager
async def serving(stage: Stage, port: int) -> AsyncIterator[str]:
    """Serve the stage on 127.0.0.1; yield its address. Raises ``ConfigError`` when the port is taken."""
    config = uvicorn.Config(
        stage.app, host="127.0.0.1", port=port, log_config=None, access_log=False, lifespan="off", ws="none",
        server_header=False, timeout_graceful_shutdown=1,
    )  # fmt: skip
    try:
        listening = socket.create_server(("127.0.0.1", port))
    except OSError as taken:
        raise ConfigError(
            f"the stage cannot listen on port {port}: {taken.strerror}; pass another --port"
        ) from taken
    server = _Server(config)
    running = asyncio.create_task(server.serve([listening]), name="stage")
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    finally:
        stage.closing = True
        server.should_exit = True
        await running
        listening.close()
