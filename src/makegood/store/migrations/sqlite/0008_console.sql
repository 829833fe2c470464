-- What operators look back on, and acts on many tasks.
-- How the attempts ended that a commit used, as JSON; null in rows of an older version.
alter table makegood_event add column attempts blob;

-- The epoch whose leader an operator asked to step down.
alter table makegood_lease add column step_down integer;

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
    more integer not null
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
