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

from makegood.lazy import names

__getattr__, __dir__, __all__ = names(
    __name__,
    {
        "blocking": "SyncQueue",
        "breaker": "Breaker",
        "call": "Call current_call",
        "client": "Client",
        "declaration": "NOT_HAPPENED NOTHING Happened NotHappened",
        "errors": "ActRefusedError AlertNotFoundError ClosedError CompleteByPassed ConfigError DefinitionError "
        "DeliveryError DuplicateNameError FencedOffError IllegalTransitionError KeyConflict Later "
        "MakegoodError PayloadError Permanent PromiseError QueueFullError Refused SchemaMismatchError "
        "StaleWriteError StoreError StoreUnavailableError SubmissionError TaskInError TaskNotFoundError "
        "TaskOutcome TaskUndone TransactionError UnknownActionError Verdict WaitExpiredError",
        "handle": "TaskHandle",
        "node": "Node",
        "options": "Options",
        "policy": "NEVER Recover Retry",
        "queued": "QueueMessage",
        "queues": "Queue",
        "receiving": "Inbox",
        "messages": "Act Answer",
        "operators": "Acted",
        "store.mail": "MessageView QueueView Sent",
        "store.notices": "ListenerView",
        "store.records": "AlertView Asked AuditView EventView Filter StepView TaskDetail TaskView",
        "submitting": "Submissions SyncSubmissions",
        "sync": "SyncClient SyncNode SyncTaskHandle",
        "task": "Plan",
        "transactions": "Transaction",
        "workflow": "App all_of any_of branches each not_ parallel when",
    },
    packages=("election", "errors", "telemetry", "testing"),
)
