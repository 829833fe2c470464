"""A process's agents for a Scheduler's unit tests: they only count their slots."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from makegood.actor.slot_pool import Reservation
from makegood.model.messages import Request, TaskMessage

ACTIONS = ("charge", "reserve", "ship")


@dataclass
class Pool:
    """Free slots by address. Agents without a number run elsewhere."""

    free: dict[str, int] = field(default_factory=dict)
    handed: list[Request] = field(default_factory=list)
    queued: list[str] = field(default_factory=list)
    resent: list[tuple[int, int, str]] = field(default_factory=list)

    def reserve(self, now: float) -> Reservation:
        """Return an empty reservation."""
        return Reservation(self, 0.0, now)

    @property
    def actions(self) -> Mapping[str, Container[str]]:
        """Each agent here runs these."""
        return dict.fromkeys(self.free, ACTIONS)

    def lend(self, address: str, action: str) -> bool:
        """Set a slot aside."""
        if self.free.get(address, 0) == 0:
            return False
        self.free[address] -= 1
        return True

    def lend_all(self) -> dict[str, int]:
        """Set all slots aside."""
        loan, self.free = self.free, dict.fromkeys(self.free, 0)
        return loan

    async def catch_up(self) -> None:
        """Wait for nobody."""

    def give_back(self, loan: Mapping[str, int]) -> None:
        """Take slots back."""
        for address, n in loan.items():
            self.free[address] += n

    def hand(self, requests: Sequence[Request], began: float, handed_at: float) -> None:
        """Begin requests."""
        self.handed += requests

    def note_backlog(self, address: str) -> None:
        """Note that the store has one."""
        self.queued.append(address)

    def tasks(self) -> set[int]:
        """Return the tasks of what was begun."""
        return {request.task for request in self.handed}

    def resend(self, node: int, task: int, message: TaskMessage) -> None:
        """Note a reply."""
        self.resent.append((node, task, message.kind))
