-- What operators look back on, and acts on many tasks.
-- How the attempts ended that a commit used, as JSON; null in rows of an older version.
alter table makegood.event add column attempts bytea;

-- The epoch whose leader an operator asked to step down.
alter table makegood.lease add column step_down bigint;

-- Writes that a fence refused: of a Scheduler that lost a task ("decision"), a former leader ("term"), an agent that was late ("reply").
create table makegood.refusal (
    id bigint generated always as identity primary key,
    at double precision not null,
    kind text not null,
    who text not null,
    node bigint,
    task bigint,
    step text not null,
    attempt integer,
    epoch bigint,
    against bigint,
    what text not null
);
create index refusal_task on makegood.refusal (task) where task is not null;

-- Figures of a minute, which the leading Supervisor adds up. `seen`: how many of its seconds a leader observed.
create table makegood.minute (
    minute bigint primary key,
    seen double precision not null,
    submitted bigint not null,
    processed bigint not null,
    undone bigint not null,
    errors bigint not null,
    steps bigint not null,
    latencies bytea not null
);

-- Acts on all tasks that match. `cursor`: tasks with this id or a higher one are dealt with. `free_at`: when its rate allows the next command.
create table makegood.bulk_act (
    id text primary key,
    kind text not null,
    wanted bytea not null,
    who text not null,
    why text not null,
    db_user text,
    counted bigint not null,
    most bigint,
    rate double precision,
    state text not null,
    at double precision not null,
    ended_at double precision,
    cursor bigint not null,
    free_at double precision not null,
    sent bigint not null,
    applied bigint not null,
    noop bigint not null,
    refused bigint not null,
    stopped_by text not null,
    more boolean not null
) with (fillfactor = 50);
create index bulk_act_at on makegood.bulk_act (at);
create index bulk_act_open on makegood.bulk_act (at) where ended_at is null;

-- Its commands that no Scheduler has decided (`outcome` null), and some of those that were refused.
create table makegood.bulk_item (
    bulk text not null,
    task bigint not null,
    act text not null,
    outcome text,
    at double precision not null,
    primary key (bulk, task)
);
create index bulk_item_open on makegood.bulk_item (bulk) where outcome is null;
