-- Submitters who want to hear of their tasks' states. Of a task without a reply_to both columns stay null.
alter table makegood_task add column told text;
alter table makegood_task add column notified integer;

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

-- What is to be sent to webhooks: CloudEvents, as they are.
create table makegood_notice (
    task integer not null,
    sequence integer not null,
    body blob not null,
    primary key (task, sequence)
);
