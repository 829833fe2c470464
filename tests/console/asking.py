"""A browser without a screen: asks an ASGI application, keeps its cookies, and sends forms as a browser does."""

from collections.abc import Callable, Mapping, MutableMapping
from http.cookies import SimpleCookie
from typing import Any, NamedTuple
from urllib.parse import urlencode

Asgi = Callable[[MutableMapping[str, Any], Any, Any], Any]


class Got(NamedTuple):
    """An answer."""

    status: int
    headers: Mapping[str, str]
    text: str


class Browser:
    """Asks one application. ``client``: the address that the application sees; ``host``: the name in the address bar."""

    def __init__(
        self,
        app: Asgi,
        *,
        client: str = "127.0.0.1",
        host: str = "localhost",
        root: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.app, self.client, self.host, self.root = app, client, host, root
        self.headers = dict(headers or {})
        self.cookies: dict[str, str] = {}

    async def get(self, path: str, **headers: str) -> Got:
        """Open a page."""
        return await self.ask("GET", path, b"", headers)

    async def post(self, path: str, fields: Mapping[str, str] | None = None, **headers: str) -> Got:
        """Send a form of one of the console's own pages."""
        headers = {
            "content-type": "application/x-www-form-urlencoded",
            "sec-fetch-site": "same-origin",
        } | headers
        return await self.ask("POST", path, urlencode(fields or {}).encode(), headers)

    async def login(self, user: str, password: str) -> Got:
        """Log in."""
        return await self.post("/login", {"user": user, "password": password})

    async def ask(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Got:
        """Send a request and return the whole answer."""
        path, _, query = path.partition("?")
        sent_headers = {
            "host": self.host,
            **self.headers,
            **{name.replace("_", "-"): v for name, v in headers.items()},
        }
        if self.cookies:
            sent_headers["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        scope: dict[str, Any] = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": self.root + path, "raw_path": (self.root + path).encode(), "root_path": self.root, "query_string": query.encode(),
            "headers": [(name.encode(), value.encode("utf-8")) for name, value in sent_headers.items()],
            "client": (self.client, 50_000), "server": ("localhost", 80),
        }  # fmt: skip
        messages: list[MutableMapping[str, Any]] = []
        bodies = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> MutableMapping[str, Any]:
            return bodies.pop() if bodies else {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            messages.append(message)

        await self.app(scope, receive, send)
        raw = [(name.decode(), value.decode()) for name, value in messages[0]["headers"]]
        for name, value in raw:
            if name == "set-cookie":
                for morsel in SimpleCookie(value).values():
                    self.cookies.pop(morsel.key, None)
                    if morsel["max-age"] != "0":
                        self.cookies[morsel.key] = morsel.value
        text = b"".join(message.get("body", b"") for message in messages[1:]).decode()
        return Got(messages[0]["status"], dict(raw), text)
