"""What a Node runs: each of its actors is a loop of its own, and all of them begin, go on and end alike."""

from abc import ABC, abstractmethod


class Actor(ABC):
    """One loop of a process. A class that needs nothing at a drain or a new number says nothing about
    them.
    """

    @abstractmethod
    async def run(self) -> None:
        """Work until cancelled."""

    async def drain(self, limit: float) -> None:  # noqa: B027 - most have nothing to wait for
        """Take nothing more, and wait up to ``limit`` seconds for what is under way."""

    def rename(self, node: int) -> None:  # noqa: B027 - most write nothing under the process's number
        """Write under this number from now on: the first, or another one once the process was declared
        dead.
        """
