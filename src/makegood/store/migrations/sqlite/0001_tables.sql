-- All tables. Points in time are seconds since 1970 on the store's own clock (makegood_clock), lengths of time are
-- seconds, payloads are JSON bytes. All names begin with makegood_, so that a user's tables can live beside them.

create table makegood_schema_version (
    version integer primary key,
    name text not null,
    applied_at real not null
);

-- The store's own random id, part of every key that a remote service sees, and its generation.
create table makegood_generation (
    store_id text not null,
    generation integer not null
);
insert into makegood_generation (store_id, generation) values (lower(hex(randomblob(8))), 1);

-- The store's clock: now = shift + monotonic clock of the boot. `seen` is a time that the clock had passed.
create table makegood_clock (
    boot_id text primary key,
    shift real not null,
    seen real not null
) without rowid;

-- Draws ready_seq: rising, and close to the microsecond at which the task became pending.
create table makegood_ready (last integer not null);
insert into makegood_ready (last) values (0);

-- The number of the last commit of each store object that writes: tells what became of a commit whose answer was an error.
create table makegood_writer (
    id integer primary key autoincrement,
    last integer not null
);

-- Not touched per step: at the claim, when its direction changes, and at rest. `told`, `notified`: the last state that its submitter
-- was notified of, and the number of notices so far; null without a reply_to. `start_at`: when a task that sleeps begins, on the store's clock;
-- with `start_wall` by the calendar: '' at a fixed moment, else the wall time and its zone.
create table makegood_task (
    id integer primary key,
    app text not null,
    workflow text not null,
    key text,
    fingerprint blob not null,
    state text not null,
    goal text not null,
    on_failure text not null,
    submission integer not null,
    priority integer not null,
    ready_seq integer not null,
    locked_by integer,
    epoch integer not null,
    within real,
    complete_by real,
    undo_within real,
    undo_by real,
    cause text not null,
    failure_count integer not null,
    lost integer not null,
    task_expired integer not null,
    correlation_id text,
    trace text,
    told text,
    notified integer,
    created_at real not null,
    ended_at real,
    static blob not null,
    result blob,
    start_at real,
    start_wall text
);
create unique index makegood_task_key on makegood_task (key, workflow, app) where key is not null;
create index makegood_task_claim on makegood_task (priority desc, ready_seq)
    where state = 'pending' and locked_by is null;
create index makegood_task_sleeping on makegood_task ((start_wall is null), priority, ready_seq, app, workflow)
    where state = 'sleeping' and locked_by is null;
create index makegood_task_asleep on makegood_task (id) where state = 'sleeping';
create index makegood_task_held on makegood_task (locked_by) where locked_by is not null;
create index makegood_task_complete_by on makegood_task (complete_by)
    where complete_by is not null and goal = 'forward' and task_expired = 0 and ended_at is null;
create index makegood_task_undo_by on makegood_task (undo_by) where undo_by is not null;
create index makegood_task_error on makegood_task (state) where state = 'error';
create index makegood_task_queued on makegood_task (priority desc, ready_seq)
    where state = 'queued' and locked_by is null and ready_seq < 9223372036854775807;
create index makegood_task_in_queue on makegood_task (id, app, workflow) where state = 'queued';
create index makegood_task_correlation on makegood_task (correlation_id) where correlation_id is not null;

-- What submitters say of tasks so that people find them.
create table makegood_attribute (
    task integer not null,
    name text not null,
    value text not null,
    primary key (task, name)
) without rowid;
create index makegood_attribute_value on makegood_attribute (name, value, task);

-- The places of tasks in lanes. `state`: waiting, held, or out (its task has ended, or has not begun to wait). `seq`: its order among those that
-- wait. Places stay for as long as their tasks. The `ready_seq` of a queued task whose lanes are taken is the largest number (it is *parked*): whoever
-- frees a lane gives a new one to those that are next. `when_taken`: wait, refuse or cancel.
create table makegood_lane (
    task integer not null,
    app text not null,
    name text not null,
    seq integer not null,
    at_once integer not null,
    when_taken text not null,
    state text not null,
    primary key (task, name)
) without rowid;
create index makegood_lane_waiting on makegood_lane (app, name, seq, task) where state = 'waiting';
create index makegood_lane_at_once on makegood_lane (app, name, at_once) where state = 'waiting' and at_once > 1;
create index makegood_lane_held on makegood_lane (app, name) where state = 'held';
create index makegood_lane_name on makegood_lane (name, task);

-- Inserted whole at submission; no index but its key. (With rowids: its rows are too big to be a good index.)
-- `first_sent`: when an agent had the first request of its round and direction; null while only the request in flight knows (`taken_at`).
-- `runs_until`: until when an earlier attempt may still run whose process seemed dead before its deadline; null: none.
create table makegood_step (
    task integer not null,
    idx integer not null,
    kind text not null,
    name text not null,
    agent text not null,
    action text not null,
    state text not null,
    attempt integer not null,
    round integer not null,
    failure_count integer not null,
    asked integer not null,
    deaths integer not null,
    flags integer not null,
    spec blob not null,
    result blob,
    late blob,
    error text,
    first_sent real,
    runs_until real,
    primary key (task, idx)
);

-- Only what is in flight: what agents take and what the Supervisor scans. A timer has attempt 0 and is due at complete_by.
-- `excused`: it was under way when its agent's circuit opened, so its silence counts as no failure. `taken_at`: when an agent had it.
-- `cancelled`: an agent has it, and nobody needs its answer any more.
create table makegood_request (
    task integer not null,
    idx integer not null,
    attempt integer not null,
    kind text not null,
    agent text not null,
    action text not null,
    priority integer not null,
    isolate integer not null,
    starved integer not null,
    excused integer not null default 0,
    cancelled integer not null default 0,
    sent_at real not null,
    taken_by integer,
    taken_at real,
    within real not null,
    complete_by real,
    answered integer not null,
    body blob,
    primary key (task, idx, attempt)
) without rowid;
create index makegood_request_take on makegood_request (agent, action, isolate, priority desc, sent_at)
    where taken_by is null and kind <> 'timer';
create index makegood_request_judge on makegood_request (complete_by)
    where complete_by is not null and answered = 0 and kind <> 'timer';
create index makegood_request_cancelled on makegood_request (taken_by) where cancelled;
create index makegood_request_starved on makegood_request (sent_at)
    where taken_by is null and starved = 0 and kind <> 'timer';

-- Messages to tasks. A sequence never comes again: a Scheduler remembers which it has seen. `db_user`: null; a file has no logins.
create table makegood_inbox (
    seq integer primary key autoincrement,
    task integer not null,
    kind text not null,
    at real not null,
    body blob not null,
    db_user text
);
create index makegood_inbox_task on makegood_inbox (task);
create index makegood_inbox_expired on makegood_inbox (at) where kind = 'expired';

-- Signals to tasks: the memory of their ids, and of those that no step has used yet. `body`: its message, kept by the task; null while it lies
-- unread in the inbox, and once it is used. `used`: the step that used it. `step`: the only one that may, '' for any.
create table makegood_signal (
    seq integer primary key autoincrement,
    task integer not null,
    name text not null,
    id text not null,
    step text not null default '',
    at real not null,
    who text not null default '',
    digest blob not null,
    body blob,
    used integer,
    used_at real
);
create unique index makegood_signal_id on makegood_signal (task, name, id);

-- History: one row per task and commit, listing its moves. `attempts`: how the attempts ended that the commit used, as JSON; empty for
-- none.
create table makegood_event (
    seq integer primary key,
    task integer not null,
    at real not null,
    node integer,
    moves blob not null,
    note text not null,
    attempts blob not null default x''
);
create index makegood_event_task on makegood_event (task);  -- and then by rowid, which is seq

-- What became of operators' acts. `change`: what the act brought with it and replaced, such as corrected inputs, as JSON.
-- `db_user`: as in the inbox.
create table makegood_audit (
    act text primary key,
    task integer not null,
    kind text not null,
    who text not null,
    why text not null,
    verdict text not null,
    reason text not null,
    state text not null,
    at real not null,
    change blob,
    db_user text
) without rowid;
create index makegood_audit_at on makegood_audit (at);
create index makegood_audit_task on makegood_audit (task, at);

-- `standing` names the cause of an alert until it has gone, so that it is raised once; then null. `logged`, `told` (to the webhook):
-- 0 nothing yet, 1 that it was raised, 2 that it ended. `tell_at`: when to try again, after so many `tries`.
create table makegood_alert (
    id integer primary key autoincrement,
    kind text not null,
    task integer,
    step text not null,
    text text not null,
    at real not null,
    standing text,
    ended_at real,
    ended_why text not null default '',
    acked_at real,
    acked_by text not null default '',
    acked_why text not null default '',
    acked_db_user text,
    logged integer not null default 0,
    told integer not null default 0,
    tell_at real,
    tries integer not null default 0
);
create index makegood_alert_task on makegood_alert (task) where task is not null;
create unique index makegood_alert_standing on makegood_alert (standing) where standing is not null;
create index makegood_alert_open on makegood_alert (id) where ended_at is null;
create index makegood_alert_unlogged on makegood_alert (id) where logged = 0 or (logged = 1 and ended_at is not null);
create index makegood_alert_untold on makegood_alert (at) where told = 0 or (told = 1 and ended_at is not null);

-- Processes. Numbers are never given twice: a lock names its holder by number.
create table makegood_node (
    id integer primary key autoincrement,
    name text not null,
    roles text not null,
    host text not null,
    pid integer not null,
    started_at real not null,
    alive_until real not null,
    stopped_at real,
    dead integer not null,
    info blob not null
);
create index makegood_node_alive on makegood_node (alive_until) where dead = 0 and stopped_at is null;

-- Never deleted, so that an epoch never comes again.
create table makegood_lease (
    name text primary key,
    holder text,
    nonce text not null,
    epoch integer not null,
    ttl real not null,
    expires_at real not null,
    taken_at real not null
) without rowid;

-- The last epoch of a lease whose leader an operator asked to step down.
create table makegood_step_down (
    name text primary key,
    epoch integer not null
) without rowid;

-- Who held a lease when: for people. The lease itself is makegood_lease.
create table makegood_lease_term (
    name text not null,
    epoch integer not null,
    holder text not null,
    began_at real not null,
    ended_at real,
    released integer not null,
    primary key (name, epoch)
) without rowid;

-- Queues that applications read and write. `state`: waiting (taken as well, while `visible_at` is ahead), dead, or done: then
-- only its id is remembered, until `expires_at`. A message that is taken can be taken again at `visible_at`; who took it is
-- told from who took it later by `tries`. `remember`: how long its id is known after it is done; null: not at all.
-- `digest`: of its first body, to know another message of the same id.
create table makegood_message (
    seq integer primary key autoincrement,
    queue text not null,
    id text not null,
    state text not null default 'waiting',
    body blob not null,
    kind text not null default '',
    correlation_id text,
    reply_to text,
    task integer,
    sequence integer,
    headers blob,
    sent_at real not null,
    visible_at real not null,
    taken_by text,
    tries integer not null default 0,
    error text not null default '',
    ended_at real,
    expires_at real,
    remember real,
    digest blob
);
create unique index makegood_message_id on makegood_message (queue, id);
create index makegood_message_take on makegood_message (queue, visible_at, seq) where state = 'waiting';
create index makegood_message_task on makegood_message (task, queue, seq) where task is not null;
create index makegood_message_dead on makegood_message (queue, seq) where state = 'dead';
create index makegood_message_expires on makegood_message (expires_at) where expires_at is not null;

-- Webhooks that are still to be told of a task: up to `sent` they were, up to `last` is to go. `due_at`: of the next try, or
-- when whoever took it (`taken_by`) has had it for too long; null once the listener is given up (`dead`). It goes with its last notice.
create table makegood_listener (
    task integer primary key,
    host text not null,
    url text not null,
    sent integer not null,
    last integer not null,
    tries integer not null default 0,
    due_at real,
    taken_by integer,
    dead integer not null default 0,
    error text not null default ''
);
create index makegood_listener_due on makegood_listener (host, due_at) where due_at is not null;
create index makegood_listener_failed on makegood_listener (dead, host) where tries > 0;

-- What is to be sent to webhooks: CloudEvents, as they are.
create table makegood_notice (
    task integer not null,
    sequence integer not null,
    body blob not null,
    primary key (task, sequence)
);

-- Agents with a rate: the moment from which their next call is free, over all processes.
create table makegood_rate (
    agent text primary key,
    next real not null
) without rowid;

-- Writes that a fence refused: of a Scheduler that lost a task ("decision"), a former leader ("term"), an agent that was late ("reply").
create table makegood_refusal (
    id integer primary key autoincrement,
    at real not null,
    kind text not null,
    who text not null,
    node integer,
    task integer,
    step text not null,
    attempt integer,
    epoch integer,
    against integer,
    what text not null
);
create index makegood_refusal_task on makegood_refusal (task) where task is not null;

-- Figures of a minute, which the leading Supervisor adds up. `seen`: how many of its seconds a leader observed.
create table makegood_minute (
    minute integer primary key,
    seen real not null,
    submitted integer not null,
    processed integer not null,
    undone integer not null,
    errors integer not null,
    steps integer not null,
    latencies blob not null
);

-- Acts on all tasks that match. `cursor`: tasks with this id or a higher one are dealt with. `free_at`: when its rate allows the next command.
create table makegood_bulk_act (
    id text primary key,
    kind text not null,
    wanted blob not null,
    who text not null,
    why text not null,
    db_user text,
    counted integer not null,
    most integer,
    rate real,
    state text not null,
    at real not null,
    ended_at real,
    cursor integer not null,
    free_at real not null,
    sent integer not null,
    applied integer not null,
    noop integer not null,
    refused integer not null,
    stopped_by text not null,
    more integer not null,
    signal text,
    value blob
);
create index makegood_bulk_act_at on makegood_bulk_act (at);
create index makegood_bulk_act_open on makegood_bulk_act (at) where ended_at is null;

-- Its commands that no Scheduler has decided (`outcome` null), and some of those that were refused.
create table makegood_bulk_item (
    bulk text not null,
    task integer not null,
    act text not null,
    outcome text,
    at real not null,
    primary key (bulk, task)
);
create index makegood_bulk_item_open on makegood_bulk_item (bulk) where outcome is null;

-- What the leading Supervisor did, for people: a row for each kind in each pass that did anything. `task` is one of `tasks`.
create table makegood_supervisor_decision (
    id integer primary key autoincrement,
    at real not null,
    epoch integer not null,
    kind text not null,
    tasks integer not null,
    task integer not null
);

-- Schedules. `spec`: times and policies, JSON; `plan`: the plan of its tasks, JSON. `progress`: the instant up to which its moments are dealt with, and
-- counts. `moment`: the next one, of the calendar; `next_at`: that moment and its jitter, or when to try again. `buffer_at`: a moment that waits for `last_task` to end.
create table makegood_schedule (
    app text not null,
    name text not null,
    spec blob not null,
    plan blob not null,
    digest blob not null,
    progress blob not null,
    moment real,
    next_at real,
    buffer_at real,
    last_task integer,
    paused_at real,
    paused_until real,
    paused_by text,
    paused_why text,
    made_at real not null,
    primary key (app, name)
);
create index makegood_schedule_due on makegood_schedule (next_at) where next_at is not null;
create index makegood_schedule_buffered on makegood_schedule (app, name) where buffer_at is not null;
