-- What the leading Supervisor did, for people: a row for each kind in each pass that did anything. `task` is one of `tasks`.
create table makegood_supervisor_decision (
    id integer primary key autoincrement,
    at real not null,
    epoch integer not null,
    kind text not null,
    tasks integer not null,
    task integer not null
);
