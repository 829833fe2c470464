"""Oversight: what people look back on, and acts on many tasks and on the leader."""

from makegood.store.bulk_acts import (
    advance_bulk,
    bulk,
    bulk_act,
    bulk_acts,
    bulk_ends,
    bulk_refusals,
    open_bulk_acts,
    stop_bulk,
)
from makegood.store.error_groups import error_groups
from makegood.store.minutes import add_minute, minutes
from makegood.store.refusals import overtaken, refusals, refused
from makegood.store.step_down import ask_step_down, asked_to_step_down
from makegood.store.supervisor_decisions import decided, decisions
from makegood.store.transaction import Verbs, reading, writing


class OversightVerbs(Verbs):
    """What people look back on, and acts on many tasks and on the leader.

    Each reading is bounded, and costs the same beside many ended tasks.
    """

    error_groups = reading(error_groups)
    refusals = reading(refusals)
    refused = writing(refused)
    overtaken = writing(overtaken)
    decisions = reading(decisions)
    decided = writing(decided)
    minutes = reading(minutes)
    add_minute = writing(add_minute)
    bulk = writing(bulk)
    stop_bulk = writing(stop_bulk)
    bulk_acts = reading(bulk_acts)
    bulk_act = reading(bulk_act)
    bulk_ends = reading(bulk_ends)
    bulk_refusals = reading(bulk_refusals)
    open_bulk_acts = reading(open_bulk_acts)
    advance_bulk = writing(advance_bulk)
    ask_step_down = writing(ask_step_down)
    asked_to_step_down = reading(asked_to_step_down)
