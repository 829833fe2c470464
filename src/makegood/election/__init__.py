"""Leader election by lease, usable without the rest of makegood.

**A lease gives no mutual exclusion at the resource.** A leader may be paused between its last look at the clock and its
write, and the write may land after a successor has begun. A lease gives at most one *believer* at a time (if clocks run
at nearly the same rate) and an ``epoch`` that rises for ever, by which the resource can refuse the late write.

    from makegood.election import Election, open_leases

    async with open_leases("postgresql://db/app") as leases:
        election = Election("reports", leases, me="host-7", ttl="15s")
        async for term in election.terms():
            async with term:                     # cancelled when the term ends, and waited for
                await make_reports(term.epoch)
"""

from makegood.election.blocking import SyncElection, SyncTerm
from makegood.election.election import Election
from makegood.election.figures import Figures
from makegood.election.opening import open_leases
from makegood.election.preference.protocol import Preference, Seen
from makegood.election.protocol import (
    Fence,
    FencingStore,
    Grant,
    LeaseStore,
    LeaseView,
    OpenLeases,
    PastTerm,
)
from makegood.election.settings import Settings
from makegood.election.term import Term
from makegood.election.watching import TermView, View
from makegood.errors import LeadershipLostError

__all__ = [
    "Election",
    "Fence",
    "FencingStore",
    "Figures",
    "Grant",
    "LeadershipLostError",
    "LeaseStore",
    "LeaseView",
    "OpenLeases",
    "PastTerm",
    "Preference",
    "Seen",
    "Settings",
    "SyncElection",
    "SyncTerm",
    "Term",
    "TermView",
    "View",
    "open_leases",
]
