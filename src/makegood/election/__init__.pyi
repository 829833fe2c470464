# Where each public name lives, for type checkers and editors: `__init__.py` loads it at its first use.

from makegood.election.counters import Figures
from makegood.election.election import Election
from makegood.election.open import open_leases
from makegood.election.preference.protocol import Preference, Seen
from makegood.election.protocol import Fence, FencingStore, Grant, LeaseStore, LeaseView, OpenLeases, PastTerm
from makegood.election.settings import Settings
from makegood.election.sync import SyncElection, SyncTerm
from makegood.election.term import Term
from makegood.election.views import TermView, View
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
