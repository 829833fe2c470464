"""Help for testing what you build on makegood: your workflow, crashed at every point, in a simulated world.

    from makegood.testing import World, crash_everywhere

    @crash_everywhere
    async def test_order(world: World) -> None:
        bank = world.service("payments")
        ...

Nothing here is for production. How to use it: docs/build/test-your-workflow.md.
"""

from makegood.testing.forwarder import Forwarder
from makegood.testing.kit.crashing import crash_everywhere, simulate
from makegood.testing.kit.proof import UnprovedError
from makegood.testing.kit.services import FakeService
from makegood.testing.kit.world import Operator, Role, Task, World
from makegood.testing.leases import LEASE_STORE_CASES, ImpossibleHereError, LeaseCase, LeaseWorld

__all__ = [
    "LEASE_STORE_CASES",
    "FakeService",
    "Forwarder",
    "ImpossibleHereError",
    "LeaseCase",
    "LeaseWorld",
    "Operator",
    "Role",
    "Task",
    "UnprovedError",
    "World",
    "crash_everywhere",
    "simulate",
]
