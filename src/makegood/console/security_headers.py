"""What every answer carries, and the line that the access log keeps of it."""

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from makegood.base.clock import Clock
from makegood.base.text import kept

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
FRESH: Final = "no-store"
"""``Cache-Control`` of every answer but a hashed file."""
FOREVER: Final = "public, max-age=31536000, immutable"

_LONGEST: Final = 500


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
        taken = round((self._clock.monotonic() - began) * 1000, 1)
        said = {name: kept(value[:_LONGEST]) for name, value in fields.items()}
        log.info(
            "%s %s: %d", said.get("method", ""), ascii(said.get("path", ""))[1:-1], status,
            extra={"event": "request", "status": status, "milliseconds": taken, **said},
        )  # fmt: skip
