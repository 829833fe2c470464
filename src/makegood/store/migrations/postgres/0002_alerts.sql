-- Alerts end, are acknowledged, and are told. `standing` names the cause while it stands, so that it is raised once; null once
-- it is gone (and in rows of an older version). `logged`, `told` (by webhook): 0 nothing yet, 1 that it was raised, 2 that it ended.
alter table makegood.alert
    add column standing text,
    add column ended_at double precision,
    add column ended_why text not null default '',
    add column acked_at double precision,
    add column acked_by text not null default '',
    add column acked_why text not null default '',
    add column logged integer not null default 0,
    add column told integer not null default 0,
    add column tell_at double precision,
    add column tries integer not null default 0;

-- What was raised before was seen or not; of tasks that are still in error it stands, and nothing of it is told anew.
update makegood.alert set logged = 2, told = 2;
update makegood.alert a set ended_at = at, ended_why = 'raised by an older version' where task is not null and not exists (
    select 1 from makegood.task t where t.id = a.task and t.state = 'error'
);

create unique index alert_standing on makegood.alert (standing) where standing is not null;
create index alert_open on makegood.alert (id) where ended_at is null;
create index alert_unlogged on makegood.alert (id) where logged = 0 or (logged = 1 and ended_at is not null);
create index alert_untold on makegood.alert (at) where told = 0 or (told = 1 and ended_at is not null);

-- What an act brought with it and replaced: corrected inputs, as JSON.
alter table makegood.audit add column change bytea;
create index audit_at on makegood.audit (at);
create index audit_task on makegood.audit (task, at);
