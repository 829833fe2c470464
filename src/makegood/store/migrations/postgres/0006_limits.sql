-- Limits of agents. A request that is excused was under way when its agent's circuit opened: its silence counts as no failure.
alter table makegood.request add column excused boolean not null default false;

-- Agents with a rate: the moment from which their next call is free, over all processes.
create table makegood.rate (
    agent text primary key,
    next double precision not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
