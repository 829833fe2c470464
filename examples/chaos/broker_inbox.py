"""The inbox of a run with a broker: orders that publishers sent to it become tasks, whose notices go to it.

The plan has no key: nothing but the message's id says that two messages are one order.
"""

import os
from dataclasses import dataclass

import makegood as mg
from examples.orders.shop import Order, shop

from .broker import NOTICES_VARIABLE, SOURCE_VARIABLE
from .orders import WORKFLOWS


@dataclass
class Publication:
    """What a publisher sends."""

    workflow: str
    order: Order


@shop.inbox(os.environ[SOURCE_VARIABLE], lease="5s")
def accept_publication(publication: Publication, tx: mg.Transaction) -> mg.Plan[str]:  # noqa: ARG001 - each inbox has one
    """Make a task of each message."""
    workflow = next(workflow for workflow in WORKFLOWS if workflow.name == publication.workflow)
    plan: mg.Plan[str] = workflow.plan(publication.order)
    return plan.with_(reply_to=os.environ[NOTICES_VARIABLE], correlation_id=publication.order.id)
