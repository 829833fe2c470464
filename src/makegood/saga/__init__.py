"""The rules: from a task, its steps and the messages at hand to one Decision. Pure: no I/O, no clock, no
randomness.

Other rooms import this package and use the names in ``__all__``; only the command line, the console and the
client also read ``rules``.

A Scheduler holds tasks (``hold``), lets the rules decide what follows from the messages at hand (``decide``),
commits the Decision, and only then applies it to the task it holds (``apply``, ``apply_first``). A lost
Decision leaves no trace in memory.

How one Decision is made: messages are folded in one after another, in the order of their arrival, an
``expired`` before the replies that it makes late. Control steps are decided on the way, so each message meets
the task as its predecessors left it. Requests are made last, when the direction of the task is known. The
modules:

- ``rules``: the sentences of the design, one small function each: what is certain, what may be asked again,
  what is undone and what bars it, when the round rises;
- ``replies``: what an answer, a silence, a withdrawn request does to its step;
- ``forward``: which steps begin, what follows a doubt, the verdict;  ``control``: when, merge, each, gather;
  ``races``: the branches of a first;
- ``undo``: withdrawing, draining, undoing in reverse order, coming to rest;  ``suspension``: a task that only
  waits goes to sleep, one that waits for slow agents if there is no room;
- ``fast_path``: the quick way of nearly every message;  ``first_decision``: decisions on tasks being
  submitted;
- ``acts``: operator commands;  ``corrected_inputs``: other inputs for what runs again;
- ``decision_builder``: the Decision under construction;  ``held``: the task that a Scheduler holds.
"""

from makegood.model.decision import At
from makegood.saga.acts import possible_commands, try_command, warnings
from makegood.saga.corrected_inputs import Replanned
from makegood.saga.decision_builder import arguments
from makegood.saga.decisions import decide, put_to_error, without_losses
from makegood.saga.fast_path import Shapes
from makegood.saga.first_decision import apply_first, begin
from makegood.saga.held import apply, hold, predecessors, repair
from makegood.saga.rules import is_in_flight, is_until, is_wait, owner
from makegood.saga.signals import is_awaited
from makegood.saga.suspension import NOTHING_DUE, Due

__all__ = [
    "NOTHING_DUE",
    "At",
    "Due",
    "Replanned",
    "Shapes",
    "apply",
    "apply_first",
    "arguments",
    "begin",
    "decide",
    "hold",
    "is_awaited",
    "is_in_flight",
    "is_until",
    "is_wait",
    "owner",
    "possible_commands",
    "predecessors",
    "put_to_error",
    "repair",
    "try_command",
    "warnings",
    "without_losses",
]
