-- Queues that applications read and write. `state`: waiting (taken as well, while `visible_at` is ahead), dead, or done: then
-- only its id is remembered, until `expires_at`. A message that is taken can be taken again at `visible_at`; who took it is
-- told from who took it later by `tries`. `remember`: how long its id is known after it is done; null: not at all.
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
    remember real
);
create unique index makegood_message_id on makegood_message (queue, id);
create index makegood_message_take on makegood_message (queue, visible_at, seq) where state = 'waiting';
create index makegood_message_task on makegood_message (task, queue, seq) where task is not null;
create index makegood_message_dead on makegood_message (queue, seq) where state = 'dead';
create index makegood_message_expires on makegood_message (expires_at) where expires_at is not null;
