"""The checker's rules that judge the engine itself: who may decide, which replies count, what may begin when.

Users' own tests do without them: no workflow and no service can break them.
"""

from collections.abc import Sequence
from typing import Final

from makegood.testing.checker.rule import Rule
from proofs.rules.cancels import HearsAndGivesWay
from proofs.rules.circuits import OpenMeansShut
from proofs.rules.notes import NotesInOrder
from proofs.rules.order import ForwardInOrder, UndoInOrder
from proofs.rules.owners import CountedOnce, OneOwner, OnlyTheTerm
from proofs.rules.replies import InTime, OneCompletion, RefusedChangesNothing
from proofs.rules.states import FinalStates, Folding

RULES_OF_THE_ENGINE: Final[Sequence[type[Rule]]] = (
    FinalStates, OneCompletion, InTime, OneOwner, OnlyTheTerm, CountedOnce, UndoInOrder, ForwardInOrder,
    RefusedChangesNothing, Folding, OpenMeansShut, HearsAndGivesWay, NotesInOrder,
)  # fmt: skip
"""One rule per invariant."""
