-- What the leading Supervisor did, for people: a row for each kind in each pass that did anything. `task` is one of `tasks`.
create table makegood.supervisor_decision (
    id bigint generated always as identity primary key,
    at double precision not null,
    epoch bigint not null,
    kind text not null,
    tasks integer not null,
    task bigint not null
);
