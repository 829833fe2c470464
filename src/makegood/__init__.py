"""makegood: multi-step tasks across remote services that end whole.

Every step done, or every effect undone, or in an operator's hands with the standing effects listed; never half done
and forgotten, whatever crashes. The Scheduler-Agent-Supervisor pattern on one SQLite file or on PostgreSQL.

    import makegood as mg

    shop = mg.App("shop")
    payments = shop.agent("payments")

    @payments.action(complete_within="30s")
    def charge(order: Order) -> str: ...

    @charge.undo
    def refund(order: Order, *, result: str | None) -> None: ...

    @shop.workflow(complete_within="2h")
    def place_order(order: Order) -> str:
        return charge(order)
"""

from makegood.blocking import SyncQueue
from makegood.breaker import Breaker
from makegood.call import Call, current_call
from makegood.client import Client
from makegood.declaration import NOT_HAPPENED, NOTHING, Happened, NotHappened
from makegood.errors import (
    ActRefusedError,
    AlertNotFoundError,
    ClosedError,
    CompleteByPassed,
    ConfigError,
    DefinitionError,
    DeliveryError,
    DuplicateNameError,
    FencedOffError,
    IllegalTransitionError,
    KeyConflict,
    Later,
    MakegoodError,
    PayloadError,
    Permanent,
    PromiseError,
    QueueFullError,
    Refused,
    SchemaMismatchError,
    StaleWriteError,
    StoreError,
    StoreUnavailableError,
    SubmissionError,
    TaskInError,
    TaskNotFoundError,
    TaskOutcome,
    TaskUndone,
    TransactionError,
    UnknownActionError,
    Verdict,
    WaitExpiredError,
)
from makegood.handle import TaskHandle
from makegood.node import Node
from makegood.options import Options
from makegood.policy import NEVER, Recover, Retry
from makegood.queued import QueueMessage
from makegood.queues import Queue
from makegood.receiving import Inbox
from makegood.sync import SyncClient, SyncNode, SyncTaskHandle
from makegood.task import Plan
from makegood.transactions import Transaction
from makegood.workflow import App, all_of, any_of, branches, each, not_, parallel, when

__all__ = [
    "NEVER",
    "NOTHING",
    "NOT_HAPPENED",
    "ActRefusedError",
    "AlertNotFoundError",
    "App",
    "Breaker",
    "Call",
    "Client",
    "ClosedError",
    "CompleteByPassed",
    "ConfigError",
    "DefinitionError",
    "DeliveryError",
    "DuplicateNameError",
    "FencedOffError",
    "Happened",
    "IllegalTransitionError",
    "Inbox",
    "KeyConflict",
    "Later",
    "MakegoodError",
    "Node",
    "NotHappened",
    "Options",
    "PayloadError",
    "Permanent",
    "Plan",
    "PromiseError",
    "Queue",
    "QueueFullError",
    "QueueMessage",
    "Recover",
    "Refused",
    "Retry",
    "SchemaMismatchError",
    "StaleWriteError",
    "StoreError",
    "StoreUnavailableError",
    "SubmissionError",
    "SyncClient",
    "SyncNode",
    "SyncQueue",
    "SyncTaskHandle",
    "TaskHandle",
    "TaskInError",
    "TaskNotFoundError",
    "TaskOutcome",
    "TaskUndone",
    "Transaction",
    "TransactionError",
    "UnknownActionError",
    "Verdict",
    "WaitExpiredError",
    "all_of",
    "any_of",
    "branches",
    "current_call",
    "each",
    "not_",
    "parallel",
    "when",
]
