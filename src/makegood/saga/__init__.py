"""The rules: from a task, its steps and what has happened to all that changes. Pure: no I/O, no clock, no chance.

A Scheduler holds tasks (``hold``), lets the rules decide what follows from the messages at hand (``decide``), commits the
Decision, and only then puts it into what it holds (``apply``). A Decision that is lost leaves no trace in memory.

How one Decision is made: messages are folded in one after another, in the order in which they came, an ``expired`` before
the replies that it makes late. Control steps are decided on the way, so each message meets the task as its predecessors
left it. Requests are made last, when it is known in which direction the task goes. The pieces:

- ``rules``: the sentences of the design, one small function each: what is certain, what may be asked again, what is
  undone and what bars it, when the round rises;
- ``replies``: what an answer, a silence, a request taken back makes of its step;
- ``forward``: which steps begin, what follows on a doubt, the verdict;  ``control``: when, merge, each, gather;
- ``undo``: withdrawing, draining, undoing in reverse order, coming to rest;
- ``straight``: the road that nearly every message takes, quickly;
- ``acts``: what operators may do;  ``correcting``: other inputs for what runs again;  ``work``: the Decision in the making;  ``held``: what a Scheduler holds;  ``birth``: what it
  decides on a task that is only being submitted.
"""

from makegood.saga.acts import lawful, tried
from makegood.saga.corrected_inputs import Replanned
from makegood.saga.decisions import decide, progressed, put_to_error
from makegood.saga.fast_path import Shapes
from makegood.saga.first_decision import Beginnings
from makegood.saga.held import apply, hold, repair

__all__ = [
    "Beginnings",
    "Replanned",
    "Shapes",
    "apply",
    "decide",
    "hold",
    "lawful",
    "progressed",
    "put_to_error",
    "repair",
    "tried",
]
