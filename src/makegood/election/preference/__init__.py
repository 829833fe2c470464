"""Preferences: who *tries* first. The lease alone decides who leads.

    from makegood.election import Election, open_leases
    from makegood.election.preference import Bully, TcpTransport

    transport = TcpTransport("host-7", {"host-6": "10.0.0.6:7400", "host-7": "10.0.0.7:7400"})
    leases = open_leases("postgresql://db/app")
    election = Election("reports", leases, me="host-7", preference=Bully(transport))

The preferred candidate takes a free lease at once. The others hold back for a bounded time, so a dead or
unreachable one delays them but blocks nothing. Used alone (``Bully(transport).leaders()``), preferences give
agreement among members that can reach each other, **not** at most one leader: in a partition each side has
its own.
"""

from makegood.election.preference.bully import Bully
from makegood.election.preference.lowest import LowestId
from makegood.election.preference.memory import MemoryNetwork
from makegood.election.preference.protocol import Preference, Seen
from makegood.election.preference.ring import Ring
from makegood.election.preference.tcp import TcpTransport
from makegood.election.preference.transport import Message, Transport

__all__ = [
    "Bully",
    "LowestId",
    "MemoryNetwork",
    "Message",
    "Preference",
    "Ring",
    "Seen",
    "TcpTransport",
    "Transport",
]
