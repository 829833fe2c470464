"""What every lease store has in common: it is closed at the end of ``async with``, and a ttl is a number of seconds."""

import math
from types import TracebackType
from typing import Self

from makegood.errors import ConfigError


def lasting(ttl: object) -> None:
    """Raise ``ConfigError`` for what is no length of a lease; an ``Election`` has made seconds of a duration by then."""
    if isinstance(ttl, bool) or not isinstance(ttl, int | float) or not 0 < ttl < math.inf:
        raise ConfigError(
            f"ttl={ttl!r} is no length of a lease: write a number of seconds above 0, such as ttl=15 "
            '(Election takes durations as well, such as "15s")'
        )


class Closing:
    """Gives a store ``async with``; it brings its own ``close``."""

    async def close(self) -> None:
        """Let go of connections and files; nothing here."""

    async def __aenter__(self) -> Self:
        """Return the store; it connects when it is first used."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store."""
        await self.close()
