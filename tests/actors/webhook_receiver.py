"""Somebody who listens to webhooks: a real server in a thread."""

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Receiver:
    """``got``: (headers with small letters, body) of each message; ``refuse``: answer 500 to so many more."""

    url: str = ""
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    refuse: int = 0

    @property
    def events(self) -> list[dict[str, Any]]:
        """The bodies of the messages that were taken."""
        return [json.loads(body) for _, body in self.got]

    def take(self, headers: dict[str, str], body: bytes) -> int:
        """Return what to answer."""
        if self.refuse:
            self.refuse -= 1
            return 500
        self.got.append((headers, body))
        return 204


@contextmanager
def listening() -> Iterator[Receiver]:
    """Listen on a port of this machine."""
    receiver = Receiver()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            self.send_response(receiver.take({k.lower(): v for k, v in self.headers.items()}, body))
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the standard library's name
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_port}/alerts"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
