-- Limits of agents. A request that is excused was under way when its agent's circuit opened: its silence counts as no failure.
alter table makegood_request add column excused integer not null default 0;

-- Agents with a rate: the moment from which their next call is free, over all processes.
create table makegood_rate (
    agent text primary key,
    next real not null
) without rowid;
