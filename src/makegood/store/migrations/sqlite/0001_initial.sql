-- The first schema. Points in time are seconds since 1970 on the store's own clock (makegood_clock), lengths of time are
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

-- Not touched per step: at the claim, when its direction changes, and at rest.
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
    created_at real not null,
    ended_at real,
    static blob not null,
    result blob
);
create unique index makegood_task_key on makegood_task (key, workflow, app) where key is not null;
create index makegood_task_claim on makegood_task (priority desc, ready_seq)
    where state = 'pending' and locked_by is null;
create index makegood_task_held on makegood_task (locked_by) where locked_by is not null;
create index makegood_task_complete_by on makegood_task (complete_by)
    where complete_by is not null and goal = 'forward' and task_expired = 0 and ended_at is null;
create index makegood_task_undo_by on makegood_task (undo_by) where undo_by is not null;
create index makegood_task_error on makegood_task (state) where state = 'error';

-- Inserted whole at submission; no index but its key. (With rowids: its rows are too big to be a good index.)
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
    primary key (task, idx)
);

-- Only what is in flight: what agents take and what the Supervisor scans. A timer has attempt 0 and is due at complete_by.
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
    sent_at real not null,
    taken_by integer,
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
create index makegood_request_starved on makegood_request (sent_at)
    where taken_by is null and starved = 0 and kind <> 'timer';

-- Messages to tasks. A sequence never comes again: a Scheduler remembers which it has seen.
create table makegood_inbox (
    seq integer primary key autoincrement,
    task integer not null,
    kind text not null,
    at real not null,
    body blob not null
);
create index makegood_inbox_task on makegood_inbox (task);
create index makegood_inbox_expired on makegood_inbox (at) where kind = 'expired';

-- History: one row per task and commit, listing its moves.
create table makegood_event (
    seq integer primary key,
    task integer not null,
    at real not null,
    node integer,
    moves blob not null,
    note text not null
);
create index makegood_event_task on makegood_event (task);  -- and then by rowid, which is seq

-- What became of operators' acts.
create table makegood_audit (
    act text primary key,
    task integer not null,
    kind text not null,
    who text not null,
    why text not null,
    verdict text not null,
    reason text not null,
    state text not null,
    at real not null
) without rowid;

create table makegood_alert (
    id integer primary key autoincrement,
    kind text not null,
    task integer,
    step text not null,
    text text not null,
    at real not null
);
create index makegood_alert_task on makegood_alert (task) where task is not null;

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
