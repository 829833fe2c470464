# Where each public name lives, for type checkers and editors: `__init__.py` loads it at its first use.

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
from makegood.messages import Act, Answer
from makegood.node import Node
from makegood.operators import Acted
from makegood.options import Options
from makegood.policy import NEVER, Recover, Retry
from makegood.queued import QueueMessage
from makegood.queues import Queue
from makegood.receiving import Inbox
from makegood.store.mail import MessageView, QueueView, Sent
from makegood.store.notices import ListenerView
from makegood.store.records import (
    AlertView,
    Asked,
    AuditView,
    EventView,
    Filter,
    StepView,
    TaskDetail,
    TaskView,
)
from makegood.submitting import Submissions, SyncSubmissions
from makegood.sync import SyncClient, SyncNode, SyncTaskHandle
from makegood.task import Plan
from makegood.transactions import Transaction
from makegood.workflow import App, all_of, any_of, branches, each, not_, parallel, when

__all__ = [
    "NEVER",
    "NOTHING",
    "NOT_HAPPENED",
    "Act",
    "ActRefusedError",
    "Acted",
    "AlertNotFoundError",
    "AlertView",
    "Answer",
    "App",
    "Asked",
    "AuditView",
    "Breaker",
    "Call",
    "Client",
    "ClosedError",
    "CompleteByPassed",
    "ConfigError",
    "DefinitionError",
    "DeliveryError",
    "DuplicateNameError",
    "EventView",
    "FencedOffError",
    "Filter",
    "Happened",
    "IllegalTransitionError",
    "Inbox",
    "KeyConflict",
    "Later",
    "ListenerView",
    "MakegoodError",
    "MessageView",
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
    "QueueView",
    "Recover",
    "Refused",
    "Retry",
    "SchemaMismatchError",
    "Sent",
    "StaleWriteError",
    "StepView",
    "StoreError",
    "StoreUnavailableError",
    "SubmissionError",
    "Submissions",
    "SyncClient",
    "SyncNode",
    "SyncQueue",
    "SyncSubmissions",
    "SyncTaskHandle",
    "TaskDetail",
    "TaskHandle",
    "TaskInError",
    "TaskNotFoundError",
    "TaskOutcome",
    "TaskUndone",
    "TaskView",
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
