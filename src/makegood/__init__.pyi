# Where each public name lives, for type checkers and editors: `__init__.py` loads it at its first use.

from makegood import codecs as codecs
from makegood import keys as keys
from makegood.base.webhook_signature import verified
from makegood.brokers.protocol import Delivery
from makegood.client.client import Client
from makegood.client.handle import TaskHandle
from makegood.client.operators import Acted
from makegood.client.queues import Queue
from makegood.client.schedules import ScheduleHandle
from makegood.client.submit_many import Submissions, SyncSubmissions
from makegood.client.sync import SyncClient, SyncQueue, SyncScheduleHandle, SyncTaskHandle
from makegood.declare.action import Action, Agent
from makegood.declare.call import Call, Token, current_call
from makegood.declare.inbox import Inbox
from makegood.declare.outcomes import NOT_HAPPENED, NOTHING, Happened, NotHappened
from makegood.declare.setup import SETUP
from makegood.declare.signal import Signal, SignalByKey
from makegood.errors import (
    ActRefusedError,
    AlertNotFoundError,
    BrokerUnavailableError,
    BulkNotFoundError,
    CallCancelled,
    ClosedError,
    CodecError,
    CompleteByPassed,
    ConfigError,
    DefinitionError,
    DeliveryError,
    DuplicateNameError,
    FencedOffError,
    IllegalTransitionError,
    KeyConflict,
    LaneTakenError,
    Later,
    MakegoodError,
    MissingUndoError,
    PayloadError,
    Permanent,
    PromiseError,
    QueueFullError,
    Refused,
    ScheduleNotFoundError,
    SchemaMismatchError,
    SignalRefused,
    StepFailedError,
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
from makegood.model.breaker import Breaker
from makegood.model.messages import Act, Answer
from makegood.model.plan import Plan
from makegood.model.policy import NEVER, Recover, Retry
from makegood.model.queue_message import QueueMessage
from makegood.node.node import Node
from makegood.node.sync import SyncNode
from makegood.options import Options
from makegood.store.lane_views import LanePlace, LaneView, TaskLane
from makegood.store.notice_records import ListenerView
from makegood.store.oversight_records import BulkView
from makegood.store.queue_records import MessageView, QueueView, Sent
from makegood.store.schedule_records import ScheduleView
from makegood.store.signals import Signalled
from makegood.store.views import (
    AlertView,
    Asked,
    AuditView,
    EventView,
    Exact,
    Filter,
    Prefix,
    SignalView,
    StepView,
    TaskDetail,
    TaskView,
)
from makegood.story.batch_progress import BatchProgress
from makegood.story.brokers import BrokersView, ReceiverView, SourceView
from makegood.supervisor.supervisor import Pass
from makegood.transactions.transaction import Transaction
from makegood.workflow.app import App
from makegood.workflow.promise import MOMENT, all_of, any_of, not_
from makegood.workflow.signal_waits import wait_for
from makegood.workflow.verbs import branches, done, each, fail, first, parallel, sleep, sleep_until, when
from makegood.workflow.workflow import Workflow

__all__ = [
    "MOMENT",
    "NEVER",
    "NOTHING",
    "NOT_HAPPENED",
    "SETUP",
    "Act",
    "ActRefusedError",
    "Acted",
    "Action",
    "Agent",
    "AlertNotFoundError",
    "AlertView",
    "Answer",
    "App",
    "Asked",
    "AuditView",
    "BatchProgress",
    "Breaker",
    "BrokerUnavailableError",
    "BrokersView",
    "BulkNotFoundError",
    "BulkView",
    "Call",
    "CallCancelled",
    "Client",
    "ClosedError",
    "CodecError",
    "CompleteByPassed",
    "ConfigError",
    "DefinitionError",
    "Delivery",
    "DeliveryError",
    "DuplicateNameError",
    "EventView",
    "Exact",
    "FencedOffError",
    "Filter",
    "Happened",
    "IllegalTransitionError",
    "Inbox",
    "KeyConflict",
    "LanePlace",
    "LaneTakenError",
    "LaneView",
    "Later",
    "ListenerView",
    "MakegoodError",
    "MessageView",
    "MissingUndoError",
    "Node",
    "NotHappened",
    "Options",
    "Pass",
    "PayloadError",
    "Permanent",
    "Plan",
    "Prefix",
    "PromiseError",
    "Queue",
    "QueueFullError",
    "QueueMessage",
    "QueueView",
    "ReceiverView",
    "Recover",
    "Refused",
    "Retry",
    "ScheduleHandle",
    "ScheduleNotFoundError",
    "ScheduleView",
    "SchemaMismatchError",
    "Sent",
    "Signal",
    "SignalByKey",
    "SignalRefused",
    "SignalView",
    "Signalled",
    "SourceView",
    "StepFailedError",
    "StepView",
    "StoreError",
    "StoreUnavailableError",
    "SubmissionError",
    "Submissions",
    "SyncClient",
    "SyncNode",
    "SyncQueue",
    "SyncScheduleHandle",
    "SyncSubmissions",
    "SyncTaskHandle",
    "TaskDetail",
    "TaskHandle",
    "TaskInError",
    "TaskLane",
    "TaskNotFoundError",
    "TaskOutcome",
    "TaskUndone",
    "TaskView",
    "Token",
    "Transaction",
    "TransactionError",
    "UnknownActionError",
    "Verdict",
    "WaitExpiredError",
    "Workflow",
    "all_of",
    "any_of",
    "branches",
    "current_call",
    "done",
    "each",
    "fail",
    "first",
    "not_",
    "parallel",
    "sleep",
    "sleep_until",
    "verified",
    "wait_for",
    "when",
]
