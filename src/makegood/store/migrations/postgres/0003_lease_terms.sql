-- Who held a lease when: for people. The lease itself is makegood.lease.
create table makegood.lease_term (
    name text not null,
    epoch bigint not null,
    holder text not null,
    began_at double precision not null,
    ended_at double precision,
    released boolean not null,
    primary key (name, epoch)
);
