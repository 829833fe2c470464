"""Users' own brokers: where orders come from, and where notices go.

A broker is named by its operator (``[brokers] main = "amqps://…"``). Code and submitters write only that name
and a place in it: ``amqp:main/orders`` is the queue *orders* of the RabbitMQ that the operator calls *main*.
So no host and no password comes from a submitter.

    a queue, stream or topic ──take──► Source ──► the store's queue ──► the inbox's function ──► a task
                             ◄──acknowledge, after the store's commit
    a notice of the store ──► Sender ──send, until the broker confirms──► a queue, stream or topic

Each kind of broker is one module here, imported only where it is used. It knows its broker and nothing of
tasks; what is taken, committed and acknowledged in which order is the relay's business (``messaging``).
"""

from makegood.brokers.address import BrokerAddress, address_of
from makegood.brokers.kinds import KINDS, Target, check, open_sender, open_source, permissions, targets_of
from makegood.brokers.protocol import (
    Backlog,
    Delivery,
    MissingPlaceError,
    OutgoingEvent,
    Reader,
    RefusedTargetError,
    Requirement,
    Sender,
    Source,
    UnsentError,
)

__all__ = [
    "KINDS",
    "Backlog",
    "BrokerAddress",
    "Delivery",
    "MissingPlaceError",
    "OutgoingEvent",
    "Reader",
    "RefusedTargetError",
    "Requirement",
    "Sender",
    "Source",
    "Target",
    "UnsentError",
    "address_of",
    "check",
    "open_sender",
    "open_source",
    "permissions",
    "targets_of",
]
