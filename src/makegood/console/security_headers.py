"""What every answer carries, and the line that the access log keeps of it."""

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from starlette.requests import Request

from makegood.base.clock import Clock
from makegood.base.text import storable_text
from makegood.console.visits import Whence

log = logging.getLogger("makegood.console.access")

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "content-security-policy": POLICY,
        "x-content-type-options": "nosniff",
        "referrer-policy": "same-origin",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
    }
)
_TLS_FOR: Final = "max-age=31536000"
"""Browsers that came over TLS come to this host over TLS for a year."""
FRESH: Final = "no-store"
"""``Cache-Control`` of every answer but a hashed file."""
FOREVER: Final = "public, max-age=31536000, immutable"

_LONGEST: Final = 500


def headers_of(origin: Whence, request: Request) -> Mapping[str, str]:
    """Return what every answer carries.

    Browsers keep to TLS for a host that is the console's own: not that of an application around it, nor
    the browser's own machine.
    """
    host = request.url.hostname or ""
    if not origin.secure or request.scope.get("root_path") or host.endswith("localhost"):
        return HEADERS
    return {**HEADERS, "strict-transport-security": _TLS_FOR}


class AccessLog:
    """Logs requests: one record each, its parts as fields, so that no part of a request can begin a line of
    its own.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def begin(self) -> float:
        """Return when a request began."""
        return self._clock.monotonic()

    def end(self, began: float, status: int, fields: Mapping[str, str]) -> None:
        """Log a request that has been answered. Query strings and forms are left out: they may hold
        payloads.
        """
        milliseconds = round((self._clock.monotonic() - began) * 1000, 1)
        texts = {name: storable_text(value[:_LONGEST]) for name, value in fields.items()}
        log.info(
            "%s %s: %d", texts.get("method", ""), ascii(texts.get("path", ""))[1:-1], status,
            extra={"event": "request", "status": status, "milliseconds": milliseconds, **texts},
        )  # fmt: skip
