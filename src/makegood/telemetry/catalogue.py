"""The table of all metrics and their meanings. The reference in the docs repeats it, and a test compares the
two.

Labels hold only declared names (apps, workflows, agents, actions) and fixed words, never a task's id or key
or the text of an error. So the number of label values is bounded.
"""

from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]

_CALL = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_TASK = (0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 21600.0, 86400.0)
_WAIT = (1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 21600.0, 86400.0, 259200.0, 604800.0, 2592000.0)
_STORE = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_SIZE = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)


class Metric(NamedTuple):
    """One metric."""

    name: str
    """Its name in Prometheus."""
    kind: Kind
    """Its type in Prometheus."""
    labels: tuple[str, ...]
    """The names of its labels; ``step`` is the declared name of the action, whatever the task's steps are
    called.
    """
    text: str
    """What it counts, and the words in its labels."""
    buckets: tuple[float, ...] = ()
    """The upper bounds of a histogram's buckets."""
    known: tuple[str, ...] = ()
    """Values of a counter's only label that begin at 0."""


TASKS_ENDED = Metric(
    "makegood_tasks_total", "counter", ("app", "workflow", "outcome"),
    "Tasks that came to rest; outcome: processed, undone, error.",
)  # fmt: skip
TASK_SECONDS = Metric(
    "makegood_task_duration_seconds", "histogram", ("app", "workflow", "outcome"),
    "From the submission of a task until it came to rest.", _TASK,
)  # fmt: skip
UNDOS = Metric(
    "makegood_undos_total", "counter", ("app", "workflow", "cause"),
    "Tasks that turned to undo; cause: permanent, threshold, complete_by, cancel, operator.",
)  # fmt: skip
TASKS = Metric(
    "makegood_tasks", "gauge", ("app", "workflow", "state"),
    "Tasks that have not ended; state: pending, sleeping, queued, processing, undoing, error. Reported by the leading Supervisor.",
)  # fmt: skip
ATTEMPTS = Metric(
    "makegood_step_attempts_total", "counter", ("app", "workflow", "step", "agent", "outcome"),
    "Attempts of actions, probes and undos that ended; outcome: ok, transient, permanent, later, timeout, lost, cancelled.",
)  # fmt: skip
STEP_SECONDS = Metric(
    "makegood_step_duration_seconds", "histogram", ("app", "agent", "step", "doing"),
    "How long an attempt ran, its tries and the pauses between them included; doing: do, probe, undo.", _CALL,
)  # fmt: skip
START_SECONDS = Metric(
    "makegood_step_schedule_to_start_seconds", "histogram", ("app", "agent", "step"),
    "From when a request was made until its attempt began.", _CALL,
)  # fmt: skip
QUEUE = Metric(
    "makegood_queue_depth", "gauge", ("app", "agent"),
    "Requests that wait for an agent. Reported by the leading Supervisor.",
)  # fmt: skip
OLDEST = Metric(
    "makegood_queue_oldest_seconds", "gauge", ("app", "agent"),
    "How long the oldest waiting request of an agent has waited. Reported by the leading Supervisor.",
)  # fmt: skip
SLOTS = Metric(
    "makegood_agent_slots", "gauge", ("app", "agent", "state"),
    "Slots of an agent in this process; state: used, free.",
)  # fmt: skip
DECISIONS = Metric(
    "makegood_supervisor_decisions_total", "counter", ("decision",),
    "What followed on failures; decision: retry, wait (the longer one), undo, hold.", known=("retry", "wait", "undo", "hold"),
)  # fmt: skip
SCAN_SECONDS = Metric(
    "makegood_supervisor_scan_seconds", "histogram", (),
    "How long a pass of the leading Supervisor took.", _STORE,
)  # fmt: skip
UNDO_STEPS = Metric(
    "makegood_undo_steps_total", "counter", ("app", "agent", "step", "outcome"),
    "Steps of undos that are settled; outcome: undone, failed, kept.",
)  # fmt: skip
LATE = Metric(
    "makegood_late_replies_discarded_total", "counter", ("app", "agent"),
    "Replies that came too late and changed nothing.",
)  # fmt: skip
CIRCUIT = Metric(
    "makegood_circuit_state", "gauge", ("app", "agent"),
    "The circuit of an agent in this process: 0 closed, 1 half-open or being released, 2 open.",
)  # fmt: skip
LEADER = Metric(
    "makegood_leader", "gauge", ("role",),
    "1 in the process that leads, 0 in those that would; role: supervisor.",
)  # fmt: skip
LEADER_CHANGES = Metric(
    "makegood_leader_changes_total", "counter", ("role",),
    "Terms that this process began; role: supervisor.",
)  # fmt: skip
FENCED = Metric(
    "makegood_fencing_refusals_total", "counter", ("role",),
    "Writes refused because their author had been overtaken; role: scheduler (Decisions), supervisor (passes).",
)  # fmt: skip
COMMITS = Metric(
    "makegood_commits_total", "counter", ("op",),
    "Writes to the store; op: commit (of Decisions), submit, take, answer.",
)  # fmt: skip
BATCH = Metric(
    "makegood_commit_batch_size", "histogram", ("op",),
    "Decisions, submissions, requests or replies that one call wrote; op: commit, submit, take, answer.", _SIZE,
)  # fmt: skip
STORE_SECONDS = Metric(
    "makegood_store_latency_seconds", "histogram", ("op",),
    "How long a call of the store took; op: commit, submit, take, answer, inbox, heartbeat.", _STORE,
)  # fmt: skip
FIRINGS = Metric(
    "makegood_schedule_firings_total", "counter", ("app", "schedule", "outcome"),
    'Moments of schedules; outcome: fired, overlap, missed, coalesced, paused, gap, fold. Schedules that clients make share the name "".',
)  # fmt: skip
SCHEDULE_LATE = Metric(
    "makegood_schedule_late_seconds", "histogram", ("app", "schedule"),
    "How long after its moment, and its jitter, a schedule fired.", _TASK,
)  # fmt: skip
DUE_LAG = Metric(
    "makegood_due_lag_seconds", "gauge", (),
    "The longest that something due has waited: a sleeping task whose moment has come, or a schedule. Reported by the leading Supervisor.",
)  # fmt: skip
SIGNALS = Metric(
    "makegood_signals_total", "counter", ("app", "workflow", "signal", "outcome"),
    "Signals to tasks; outcome: used, kept, late (its task had ended), refused. A kept one may be used later, and counts again.",
)  # fmt: skip
WAIT_SECONDS = Metric(
    "makegood_wait_seconds", "histogram", ("app", "workflow", "step", "outcome"),
    "How long a step waited, for waits that began in this process; step: sleep, or the name of the signal; outcome: moment, signal, timeout, dropped.", _WAIT,
)  # fmt: skip
SOURCE_MESSAGES = Metric(
    "makegood_source_messages_total", "counter", ("source", "outcome"),
    "Messages of a broker; outcome: taken (into the store's queue), refused (dead letters), redelivered (the broker said that it was not the first time).",
)  # fmt: skip
SOURCE_WAITING = Metric(
    "makegood_source_waiting", "gauge", ("source",),
    "Messages at a broker that nobody has acknowledged, as it last said to this process.",
)  # fmt: skip
SOURCE_OLDEST = Metric(
    "makegood_source_oldest_seconds", "gauge", ("source",),
    "The age of the oldest of them, where the broker says it.",
)  # fmt: skip
SOURCE_AWAY = Metric(
    "makegood_source_away_seconds", "gauge", ("source",),
    "For how long the broker has not answered this process; 0 while it does.",
)  # fmt: skip
BROKER_SENDS = Metric(
    "makegood_broker_sends_total", "counter", ("broker", "outcome"),
    "Notices sent to brokers; outcome: sent, failed (and tried again, or given up).",
)  # fmt: skip
RECEIVER_AWAY = Metric(
    "makegood_receiver_away_seconds", "gauge", ("broker",),
    "For how long the broker has taken no notices from this process; 0 while it does.",
)  # fmt: skip
ALERTS = Metric(
    "makegood_alerts", "gauge", ("kind",),
    "Open alerts, by kind. Reported by the leading Supervisor.",
)  # fmt: skip

METRICS: tuple[Metric, ...] = (
    TASKS_ENDED, TASK_SECONDS, UNDOS, TASKS, ATTEMPTS, STEP_SECONDS, START_SECONDS, QUEUE, OLDEST, SLOTS, DECISIONS, SCAN_SECONDS,
    UNDO_STEPS, LATE, CIRCUIT, LEADER, LEADER_CHANGES, FENCED, COMMITS, BATCH, STORE_SECONDS, FIRINGS, SCHEDULE_LATE, DUE_LAG, SIGNALS,
    WAIT_SECONDS, SOURCE_MESSAGES, SOURCE_WAITING, SOURCE_OLDEST, SOURCE_AWAY, BROKER_SENDS, RECEIVER_AWAY, ALERTS,
)  # fmt: skip
"""All of them, in the order of the reference."""
