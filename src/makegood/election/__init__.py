"""Leader election by lease, usable without the rest of makegood.

**A lease gives no mutual exclusion at the resource.** A leader may be paused between its last check of the
clock and its write, and the write may land after a successor has begun. A lease gives at most one *believer*
at a time (if clocks run at nearly the same rate) and an ``epoch`` that rises forever, by which the resource
can refuse the late write.

    from makegood.election import Election, open_leases

    async with open_leases("postgresql://db/app") as leases:
        election = Election("reports", leases, me="host-7", ttl="15s")
        async for term in election.terms():
            async with term:                     # cancelled when the term ends, and waited for
                await make_reports(term.epoch)
"""

from makegood.base.lazy import names

__getattr__, __dir__, __all__ = names(
    __name__,
    {
        ".errors": "LeadershipLostError",
        "counters": "Figures",
        "election": "Election",
        "open": "open_leases",
        "preference.protocol": "Preference Seen",
        "protocol": "Fence FencingStore Grant LeaseStore LeaseView OpenLeases PastTerm",
        "settings": "Settings",
        "sync": "SyncElection SyncTerm",
        "term": "Term",
        "views": "TermView View",
    },
)
