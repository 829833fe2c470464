-- Alerts end, are acknowledged, and are told. `standing` names the cause while it stands, so that it is raised once; null once
-- it is gone (and in rows of an older version). `logged`, `told` (by webhook): 0 nothing yet, 1 that it was raised, 2 that it ended.
alter table makegood_alert add column standing text;
alter table makegood_alert add column ended_at real;
alter table makegood_alert add column ended_why text not null default '';
alter table makegood_alert add column acked_at real;
alter table makegood_alert add column acked_by text not null default '';
alter table makegood_alert add column acked_why text not null default '';
alter table makegood_alert add column logged integer not null default 0;
alter table makegood_alert add column told integer not null default 0;
alter table makegood_alert add column tell_at real;
alter table makegood_alert add column tries integer not null default 0;

-- What was raised before was seen or not; of tasks that are still in error it stands, and nothing of it is told anew.
update makegood_alert set logged = 2, told = 2;
update makegood_alert set ended_at = at, ended_why = 'raised by an older version' where task is not null and not exists (
    select 1 from makegood_task t where t.id = makegood_alert.task and t.state = 'error'
);

create unique index makegood_alert_standing on makegood_alert (standing) where standing is not null;
create index makegood_alert_open on makegood_alert (id) where ended_at is null;
create index makegood_alert_unlogged on makegood_alert (id) where logged = 0 or (logged = 1 and ended_at is not null);
create index makegood_alert_untold on makegood_alert (at) where told = 0 or (told = 1 and ended_at is not null);

-- What an act brought with it and replaced: corrected inputs, as JSON.
alter table makegood_audit add column change blob;
create index makegood_audit_at on makegood_audit (at);
create index makegood_audit_task on makegood_audit (task, at);
