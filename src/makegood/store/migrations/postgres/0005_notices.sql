-- Submitters who want to hear of their tasks' states. Of a task without a reply_to both columns stay null.
alter table makegood.task add column told text;
alter table makegood.task add column notified int;

-- Webhooks that are still to be told of a task: up to `sent` they were, up to `last` is to go. `due_at`: of the next try, or
-- when whoever took it (`taken_by`) has had it for too long; null once the listener is given up (`dead`). It goes with its last notice.
create table makegood.listener (
    task bigint primary key,
    host text not null,
    url text not null,
    sent int not null,
    last int not null,
    tries int not null default 0,
    due_at float8,
    taken_by bigint,
    dead boolean not null default false,
    error text not null default ''
);
create index listener_due on makegood.listener (host, due_at) where due_at is not null;

-- What is to be sent to webhooks: CloudEvents, as they are.
create table makegood.notice (
    task bigint not null,
    sequence int not null,
    body bytea not null,
    primary key (task, sequence)
);
