"""What every lease store has in common: it is closed at the end of ``async with``."""

from types import TracebackType
from typing import Self


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
