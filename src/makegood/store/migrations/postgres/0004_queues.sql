-- Queues that applications read and write. `state`: waiting (taken as well, while `visible_at` is ahead), dead, or done: then
-- only its id is remembered, until `expires_at`. A message that is taken can be taken again at `visible_at`; who took it is
-- told from who took it later by `tries`. `remember`: how long its id is known after it is done; null: not at all.
create table makegood.message (
    seq bigint generated always as identity primary key,
    queue text not null,
    id text not null,
    state text not null default 'waiting',
    body bytea not null,
    kind text not null default '',
    correlation_id text,
    reply_to text,
    task bigint,
    sequence integer,
    headers bytea,
    sent_at double precision not null,
    visible_at double precision not null,
    taken_by text,
    tries integer not null default 0,
    error text not null default '',
    ended_at double precision,
    expires_at double precision,
    remember double precision
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
create unique index message_id on makegood.message (queue, id);
create index message_take on makegood.message (queue, visible_at, seq) where state = 'waiting';
create index message_task on makegood.message (task, queue, seq) where task is not null;
create index message_dead on makegood.message (queue, seq) where state = 'dead';
create index message_expires on makegood.message (expires_at) where expires_at is not null;
