-- Roles for makegood. Apply it as a superuser, or as a role that may create roles and is a member of the schema's owner; apply it again
-- after each migration. It locks the tables for a moment. It does not touch other roles: those that have rights in the schema besides the
-- owner meet no row of the tables with row level security until they are members of one of these.
begin;
set local search_path = pg_catalog, pg_temp;
set local standard_conforming_strings = on;
set local lock_timeout = '30s';
