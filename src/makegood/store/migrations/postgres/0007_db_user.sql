-- The login of the database under which an operator acted: the database itself says so, while `who` is what the operator typed. Null for
-- all other messages, and for acts of an older version.
alter table makegood.inbox add column db_user text;
alter table makegood.audit add column db_user text;
