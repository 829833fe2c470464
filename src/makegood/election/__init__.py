"""Leader election by lease, usable without the rest of makegood.

**A lease gives no mutual exclusion at the resource.** A leader may be paused between its last look at the clock and its
write, and the write may land after a successor has begun. A lease gives at most one *believer* at a time (if clocks run
at nearly the same rate) and an ``epoch`` that rises for ever, by which the resource can refuse the late write.

    election = Election("orders/supervisor", leases, me="host-7", ttl="15s")
    async for term in election.terms():
        async with term:
            await lead(term.grant)
"""

from makegood.election.election import Election
from makegood.election.protocol import Grant, LeaseStore
from makegood.election.term import LeadershipLostError, Term

__all__ = ["Election", "Grant", "LeadershipLostError", "LeaseStore", "Term"]
