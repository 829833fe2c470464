"""What an election needs of a lease store."""

from typing import Protocol, TypeVar


class Grant(Protocol):
    """Proof that a lease was taken. ``epoch`` rises with each change of holder, for ever; ``ttl`` is in seconds."""

    @property
    def name(self) -> str:
        """The lease's name."""
        ...

    @property
    def holder(self) -> str:
        """Who holds it."""
        ...

    @property
    def nonce(self) -> str:
        """Made by the taker for each campaign, so that a take whose answer was lost can be repeated."""
        ...

    @property
    def epoch(self) -> int:
        """The fencing number."""
        ...

    @property
    def ttl(self) -> float:
        """Seconds that the lease lasts from each acquisition or renewal."""
        ...


G = TypeVar("G", bound=Grant)


class LeaseStore(Protocol[G]):
    """A place where a lease is kept; its own clock judges expiry. The record is never deleted."""

    async def acquire(self, name: str, holder: str, nonce: str, ttl: float) -> G | None:
        """Take a free or expired lease with epoch + 1; the same nonce again gives the same epoch; None: it is held."""
        ...

    async def renew(self, grant: G) -> bool:
        """Extend a lease that is still held and not expired; False: the term is over."""
        ...

    async def release(self, grant: G) -> None:
        """Free the lease if it is still this grant's; otherwise nothing."""
        ...
