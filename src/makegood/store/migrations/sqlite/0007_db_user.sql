-- A file has no logins: null. In PostgreSQL the login of the database under which an operator acted.
alter table makegood_inbox add column db_user text;
alter table makegood_audit add column db_user text;
