-- The first schema. Points in time are seconds since 1970 on the server's clock (clock_timestamp()), lengths of time are
-- seconds, payloads are JSON bytes. Everything lives in a schema of its own, so that a user's tables can live beside it
-- and commit together with it. Rows are found by whoever must act on them, through small indexes that hold only what is
-- unfinished; their dead entries are walked until a vacuum, hence the eager autovacuum on the tables that churn.
create schema makegood;

create table makegood.schema_version (
    version integer primary key,
    name text not null,
    applied_at double precision not null
);

-- The store's own random id, part of every key that a remote service sees, and its generation: raised when the history
-- under it is another one than before (another timeline after a promotion, another cluster after a restore).
create table makegood.generation (
    store_id text not null,
    generation integer not null,
    system_id text not null,
    timeline text not null
);
insert into makegood.generation (store_id, generation, system_id, timeline)
values (substr(md5(gen_random_uuid()::text || clock_timestamp()::text), 1, 16), 1, '', '');

-- One row per writing connection, its id drawn at random by the process. A transaction carries its number here, in its own commit: an ambiguous commit is
-- resolved by one look at this row, and a number once passed over can never be used again by a statement that comes late.
-- `outcome` keeps what the answer would have said besides "done".
create table makegood.writer (
    id bigint primary key,
    number bigint not null,
    outcome bigint[],
    at double precision not null
) with (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Drawn each time a task becomes pending.
create sequence makegood.ready as bigint;

-- Not touched per step: at the claim, when its direction changes, and at rest.
create table makegood.task (
    id bigint primary key,
    app text not null,
    workflow text not null,
    key text,
    fingerprint bytea not null,
    state text not null,
    goal text not null,
    on_failure text not null,
    submission integer not null,
    priority integer not null check (priority between 0 and 9),
    ready_seq bigint not null,
    locked_by bigint,
    epoch bigint not null,
    within double precision,
    complete_by double precision,
    undo_within double precision,
    undo_by double precision,
    cause text not null,
    failure_count integer not null,
    lost integer not null,
    task_expired boolean not null,
    correlation_id text,
    trace text,
    created_at double precision not null,
    ended_at double precision,
    static bytea not null,
    result bytea
) with (fillfactor = 70);
create unique index task_key on makegood.task (key, workflow, app) where key is not null;
create index task_claim on makegood.task (priority, ready_seq) where state = 'pending' and locked_by is null;
create index task_held on makegood.task (locked_by) where locked_by is not null;
create index task_complete_by on makegood.task (complete_by)
    where complete_by is not null and goal = 'forward' and not task_expired and ended_at is null;
create index task_undo_by on makegood.task (undo_by) where undo_by is not null;
create index task_error on makegood.task (id) where state = 'error';

-- Inserted whole at submission; no index but its key, so that changes of state stay on their page.
create table makegood.step (
    task bigint not null,
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
    spec bytea not null,
    result bytea,
    late bytea,
    error text,
    primary key (task, idx)
) with (fillfactor = 60);

-- Only what is in flight: what agents take and what the Supervisor scans. A timer has attempt 0 and is due at complete_by.
create table makegood.request (
    task bigint not null,
    idx integer not null,
    attempt integer not null,
    kind text not null,
    agent text not null,
    action text not null,
    priority integer not null,
    isolate boolean not null,
    starved boolean not null,
    sent_at double precision not null,
    taken_by bigint,
    taken_writer bigint,
    taken_number bigint,
    within double precision not null,
    complete_by double precision,
    answered boolean not null,
    body bytea,
    primary key (task, idx, attempt)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0);
create index request_take on makegood.request (agent, priority, sent_at) where taken_by is null and kind <> 'timer';
create index request_isolated on makegood.request (agent) where isolate and taken_by is null and kind <> 'timer';
create index request_judge on makegood.request (complete_by) where complete_by is not null and kind <> 'timer';

-- Messages to tasks. A sequence never comes again: a Scheduler remembers which it has seen.
create table makegood.inbox (
    seq bigint generated always as identity primary key,
    task bigint not null,
    kind text not null,
    at double precision not null,
    body bytea not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
create index inbox_task on makegood.inbox (task);
create index inbox_expired on makegood.inbox (at) where kind = 'expired';

-- History: one row per task and commit, listing its moves. Append-only.
create table makegood.event (
    seq bigint generated always as identity,
    task bigint not null,
    at double precision not null,
    node bigint,
    moves bytea not null,
    note text not null
);
create unique index event_task on makegood.event (task, seq);

-- What became of operators' acts.
create table makegood.audit (
    act text primary key,
    task bigint not null,
    kind text not null,
    who text not null,
    why text not null,
    verdict text not null,
    reason text not null,
    state text not null,
    at double precision not null
);

create table makegood.alert (
    id bigint generated always as identity primary key,
    kind text not null,
    task bigint,
    step text not null,
    text text not null,
    at double precision not null
);
create index alert_task on makegood.alert (task) where task is not null;

-- Processes. Numbers are never given twice: a lock names its holder by number.
create table makegood.node (
    id bigint generated always as identity primary key,
    name text not null,
    roles text not null,
    host text not null,
    pid integer not null,
    started_at double precision not null,
    alive_until double precision not null,
    stopped_at double precision,
    dead boolean not null,
    info bytea not null
) with (fillfactor = 50);
create index node_alive on makegood.node (alive_until) where not dead and stopped_at is null;

-- Never deleted, so that an epoch never comes again.
create table makegood.lease (
    name text primary key,
    holder text,
    nonce text not null,
    epoch bigint not null,
    ttl double precision not null,
    expires_at double precision not null,
    taken_at double precision not null
) with (fillfactor = 50);
