-- Who held a lease when: for people. The lease itself is makegood_lease.
create table makegood_lease_term (
    name text not null,
    epoch integer not null,
    holder text not null,
    began_at real not null,
    ended_at real,
    released integer not null,
    primary key (name, epoch)
) without rowid;
