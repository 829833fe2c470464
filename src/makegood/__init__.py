"""makegood: sagas, which are multi-step tasks across remote services that end in a known state.

Every step is done, or every effect is undone, or an operator has a list of the effects that are still in
place, whatever crashes. The Scheduler-Agent-Supervisor pattern on one SQLite file or on PostgreSQL.

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

from makegood.base.lazy import names

__getattr__, __dir__, __all__ = names(
    __name__,
    {
        "base.webhook_signature": "verified",
        "brokers.protocol": "Delivery",
        "client.client": "Client",
        "client.handle": "TaskHandle",
        "client.operators": "Acted",
        "client.queues": "Queue",
        "client.schedules": "ScheduleHandle",
        "client.submit_many": "Submissions SyncSubmissions",
        "client.sync": "SyncClient SyncQueue SyncScheduleHandle SyncTaskHandle",
        "declare.action": "Action Agent",
        "declare.call": "Call Token current_call",
        "declare.inbox": "Inbox",
        "declare.outcomes": "Happened NOTHING NOT_HAPPENED NotHappened",
        "declare.setup": "SETUP",
        "declare.signal": "Signal SignalByKey",
        "errors": "ActRefusedError AlertNotFoundError BrokerUnavailableError BulkNotFoundError CallCancelled ClosedError CodecError CompleteByPassed ConfigError "
        "DefinitionError DeliveryError DuplicateNameError FencedOffError IllegalTransitionError "
        "KeyConflict LaneTakenError Later MakegoodError MissingUndoError PayloadError Permanent PromiseError QueueFullError "
        "Refused ScheduleNotFoundError SchemaMismatchError SignalRefused StoreError StoreUnavailableError "
        "StepFailedError SubmissionError TaskInError TaskNotFoundError TaskOutcome TaskUndone TransactionError "
        "UnknownActionError Verdict WaitExpiredError",
        "model.breaker": "Breaker",
        "model.messages": "Act Answer",
        "model.plan": "Plan",
        "model.policy": "NEVER Recover Retry",
        "model.queue_message": "QueueMessage",
        "node.node": "Node",
        "node.sync": "SyncNode",
        "options": "Options",
        "store.lane_views": "LanePlace LaneView TaskLane",
        "store.notice_records": "ListenerView",
        "store.oversight_records": "BulkView",
        "store.queue_records": "MessageView QueueView Sent",
        "store.schedule_records": "ScheduleView",
        "store.signals": "Signalled",
        "store.views": "AlertView Asked AuditView EventView Exact Filter Prefix SignalView StepView TaskDetail TaskView",
        "story.batch_progress": "BatchProgress",
        "story.brokers": "BrokersView ReceiverView SourceView",
        "supervisor.supervisor": "Pass",
        "transactions.transaction": "Transaction",
        "workflow.app": "App",
        "workflow.promise": "MOMENT all_of any_of not_",
        "workflow.signal_waits": "wait_for",
        "workflow.verbs": "branches done each fail first parallel sleep sleep_until when",
        "workflow.workflow": "Workflow",
    },
    packages=("codecs", "election", "errors", "keys", "telemetry", "testing"),
)
