commit;

-- The roles have no passwords yet: \password ROLE in psql, or a certificate, or a login of each person's own that is a member:
--   create role anna login in role ROLE;
-- Anybody who may connect can listen to the channel makegood and notify there (no data, but names of queues and agents); so let nobody else
-- connect, once the application's own roles have been granted it:
--   revoke connect on database ... from public;  grant connect on database ... to :roles;
-- On PostgreSQL 14 and databases upgraded from it:
--   revoke create on schema public from public;
