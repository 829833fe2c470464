"""What all lease stores have in common: ``async with`` closes them, and a ttl is a number of seconds."""

import math
from typing import Self

from makegood.errors import ConfigError


def lasting(ttl: object) -> None:
    """Raise ``ConfigError`` for an invalid ttl; an ``Election`` has converted durations to seconds by
    then.
    """
    if isinstance(ttl, bool) or not isinstance(ttl, int | float) or not 0 < ttl < math.inf:
        raise ConfigError(
            f"ttl={ttl!r} is not the length of a lease: write a number of seconds above 0, such as ttl=15 "
            '(Election takes durations as well, such as "15s")'
        )


class Closing:
    """Gives a store ``async with``; the store has its own ``close``."""

    async def close(self) -> None:
        """Close connections and files; nothing here."""

    async def __aenter__(self) -> Self:
        """Return the store; it connects when it is first used."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the store."""
        await self.close()
