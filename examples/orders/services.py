"""The remote services of the example, one HTTP process that plays three: stock, payments and carrier.

``python -m orders.services --books books.db --port 0 --ready-file ready.json``

Every operation is ``POST /service/operation`` with a JSON object (``order_id``, and what the operation needs) and
these headers:

- ``Idempotency-Key``: the same key gets the same answer, refusals included, and the effect once.
- ``Makegood-Token`` ("generation.attempt") and ``Makegood-Scope``: within a scope a token lower than the highest
  seen is refused (409 ``superseded``). Without them nothing is fenced.
- ``Makegood-Undoes``: in an undo and in a probe, the key that it is about. Undoing a key under which nothing was
  done is answered as well, and remembered: the late request finds 410 ``undone``.

``POST /service/find`` is the probe: did the key happen? With ``{"fences": true}`` it also raises the scope's token.
``GET`` and ``POST /faults`` read and turn the dials (``faults.py``), ``GET /totals`` sums up the books, ``GET
/health`` counts the other requests under way. A token is looked at in the transaction of the effect, after any waiting, so
that a slow request is a true message from the past. SIGKILL at any moment leaves the books whole; SIGTERM ends.
"""

import argparse
import json
import os
import signal
import socketserver
import sys
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final

from .books import OPERATIONS, SERVICES, Answer, Ask, Books
from .faults import Faults, FaultsError, parse

HANG_SECONDS: Final = 60.0
"""An unanswered request is let go after this long, if its caller has not left before."""
BODY_LIMIT: Final = 64 * 1024
REFUSED_ON_SIGHT: Final[Mapping[str, tuple[str, str]]] = {
    "stock/reserve": ("sku", "sold-out"),
    "payments/charge": ("card", "declined"),
    "carrier/ship": ("sku", "anvil"),
}
"""Orders that are always refused, without any fault: what they say, and where."""


class BadRequestError(Exception):
    """The request makes no sense; the message says why and goes back with status 400."""


class World(socketserver.ThreadingTCPServer):
    """The server: one thread per connection, one set of books and dials for all."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 512

    def __init__(self, books: Books, faults: Faults, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Door)
        self.books = books
        self.faults = faults
        self._count = threading.Lock()
        self._under_way = 0

    @property
    def url(self) -> str:
        """Where the services answer."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def under_way(self, change: int = 0) -> int:
        """How many requests are being served, after adding ``change``."""
        with self._count:
            self._under_way += change
            return self._under_way

    def process_request(self, request: Any, client_address: Any) -> None:
        """Count the request as it is accepted, in order: who asks for the count finds every earlier one in it."""
        self.under_way(+1)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve the request in its thread, and count it out."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.under_way(-1)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that has left is no error of ours; anything else is shown."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Door(BaseHTTPRequestHandler):
    """Reads one request, lets a fault meet it, and answers or does not."""

    server: World

    def do_GET(self) -> None:
        """Look at the world without changing it."""
        match self.path:
            case "/health":
                others = self.server.under_way() - 1
                self._answer(Answer(200, {"pid": os.getpid(), "under_way": others}))
            case "/totals":
                self._answer(Answer(200, self.server.books.totals()))
            case "/faults":
                faults = self.server.faults
                self._answer(
                    Answer(200, {"dials": faults.dials(), "met": faults.met(), "asked": faults.asked()})
                )
            case _:
                self._answer(_nothing_here(self.path))

    def do_POST(self) -> None:
        """Turn the dials, or ask a service for something."""
        try:
            body = self._body()
            if self.path == "/faults":
                self.server.faults.turn(body)
                self._answer(Answer(200, {"dials": self.server.faults.dials()}))
                return
            self._serve(self.path.lstrip("/"), body)
        except (BadRequestError, FaultsError) as error:
            self._answer(Answer(400, {"code": "bad request", "message": str(error)}))

    def _serve(self, place: str, body: Mapping[str, Any]) -> None:
        service, _, name = place.partition("/")
        if place not in OPERATIONS and not (service in SERVICES and name == "find"):
            self._answer(_nothing_here(self.path))
            return
        ask = self._ask(place, body)
        fault = self.server.faults.draw(place, ask.order_id)
        match fault:
            case "fail":
                self._answer(
                    Answer(500, {"code": "failed", "message": "something broke here; nothing was done"})
                )
                return
            case "busy":
                self._answer(Answer(429, {"code": "busy", "message": "too much to do"}))
                return
            case "abort":
                return
            case "hang":
                self._wait_for_caller_to_leave()
                return
            case "slow":
                time.sleep(self.server.faults.slow_seconds(place))
            case _:
                time.sleep(self.server.faults.pace_seconds(place))
        answer = self._act(place, ask, body, refuse=fault == "refuse")
        if fault == "lie":
            if self.server.faults.chance("lie", place, ask.order_id) < 0.5:
                self._wait_for_caller_to_leave()
            return
        self._answer(answer)

    def _act(self, place: str, ask: Ask, body: Mapping[str, Any], *, refuse: bool) -> Answer:
        books = self.server.books
        operation = OPERATIONS.get(place)
        if operation is None:
            return books.find(place.partition("/")[0], ask, fences=body.get("fences") is True)
        if operation.undoes:
            return books.undo(operation, ask)
        fact, value = REFUSED_ON_SIGHT.get(place, ("", ""))
        return books.do(operation, ask, refuse=refuse or (bool(fact) and body.get(fact) == value))

    def _ask(self, place: str, body: Mapping[str, Any]) -> Ask:
        """Read headers and body into an ``Ask``; raise ``BadRequestError`` for what a service must insist on."""
        key, undoes = self.headers.get("Idempotency-Key", ""), self.headers.get("Makegood-Undoes", "")
        scope, token = self.headers.get("Makegood-Scope", ""), self.headers.get("Makegood-Token", "")
        operation = OPERATIONS.get(place)
        if operation is None or operation.undoes:
            _insist(undoes, f"{place} needs the header Makegood-Undoes: the key that it is about")
        if operation is not None:
            _insist(key, f"{place} needs the header Idempotency-Key")
        if token:
            _insist(scope, "Makegood-Token means nothing without Makegood-Scope")
        order_id, sku, cents = body.get("order_id", ""), body.get("sku", ""), body.get("cents", 0)
        approved_by = body.get("approved_by", "")
        if not isinstance(order_id, str) or (operation is not None and not order_id):
            raise BadRequestError(f"{place} needs order_id, a string")
        if not isinstance(sku, str) or not isinstance(cents, int) or isinstance(cents, bool):
            raise BadRequestError("sku is a string and cents a whole number")
        if not isinstance(approved_by, str):
            raise BadRequestError("approved_by is a string")
        return Ask(key, scope, _token(token), undoes, order_id, sku, cents, approved_by)

    def _body(self) -> Mapping[str, Any]:
        try:
            length = int(self.headers.get("Content-Length") or 0)
            if not 0 <= length <= BODY_LIMIT:
                raise BadRequestError(f"a body of {length} bytes; the limit is {BODY_LIMIT}")
            body = json.loads(self.rfile.read(length) or b"{}")
        except ValueError as error:
            raise BadRequestError(f"the body is not JSON: {error}") from error
        if not isinstance(body, dict):
            raise BadRequestError("the body is not a JSON object")
        return body

    def _answer(self, answer: Answer) -> None:
        content = json.dumps(dict(answer.body)).encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if answer.status == 429:
            self.send_header("Retry-After", "1")
        self.end_headers()
        self.wfile.write(content)

    def _wait_for_caller_to_leave(self) -> None:
        """Say nothing until the caller hangs up; a caller has nothing more to send, so any news is that."""
        self.connection.settimeout(HANG_SECONDS)
        try:
            self.connection.recv(1)
        except OSError:
            return

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is given
        """Say nothing: the books are the record."""


def _token(text: str) -> tuple[int, int] | None:
    if not text:
        return None
    generation, _, attempt = text.partition(".")
    if not (generation.isascii() and generation.isdigit() and attempt.isascii() and attempt.isdigit()):
        raise BadRequestError(f"Makegood-Token is 'generation.attempt' in whole numbers, not {text!r}")
    return int(generation), int(attempt)


def _insist(value: str, otherwise: str) -> None:
    if not value:
        raise BadRequestError(otherwise)


def _nothing_here(path: str) -> Answer:
    return Answer(
        404, {"code": "not found", "message": f"nothing at {path}; there are {', '.join(OPERATIONS)}"}
    )


def _announce(path: Path, url: str) -> None:
    """Write the ready file whole or not at all: who reads it finds an address that answers."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(json.dumps({"url": url, "pid": os.getpid()}))
    draft.replace(path)


def _end_with_stdin(world: World) -> None:
    """End when the process that started us has gone, however it went: its end of our stdin closes with it."""
    while os.read(0, 4096):  # not sys.stdin: its lock, held at the interpreter's end, would abort it
        pass
    world.shutdown()


def main(arguments: list[str] | None = None) -> int:
    """Run the services until SIGTERM or SIGINT. Returns the exit code: 2 for faults that do not exist."""
    parser = argparse.ArgumentParser(
        prog="orders.services", description="The remote services of the order example."
    )
    parser.add_argument(
        "--books", type=Path, required=True, help="the SQLite file of the services' own books"
    )
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 takes a free one")
    parser.add_argument(
        "--ready-file", type=Path, help="written, as JSON with url and pid, when requests are served"
    )
    parser.add_argument("--seed", type=int, default=0, help="which requests meet a fault")
    parser.add_argument("--faults", default="", help='\'rough\', or JSON such as {"payments": {"lie": 0.1}}')
    parser.add_argument(
        "--forgets",
        default="{}",
        help='for how many seconds which keys are remembered, as JSON: {"/pack/": 9}',
    )
    parser.add_argument(
        "--until-stdin-closes", action="store_true", help="end when the starting process has gone"
    )
    options = parser.parse_args(arguments)
    try:
        faults = Faults(options.seed, parse(options.faults))
    except FaultsError as error:
        parser.error(str(error))
    books = Books(options.books, json.loads(options.forgets))
    with World(books, faults, options.port) as world:
        for number in (signal.SIGTERM, signal.SIGINT):
            # shutdown() waits for the loop that this very thread is in, so another thread calls it
            signal.signal(number, lambda *_: threading.Thread(target=world.shutdown, daemon=True).start())
        if options.until_stdin_closes:
            threading.Thread(target=_end_with_stdin, args=(world,), daemon=True).start()
        if options.ready_file:
            _announce(options.ready_file, world.url)
        print(f"stock, payments and carrier answer at {world.url}", file=sys.stderr)
        world.serve_forever(poll_interval=0.1)
    books.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
