-- :role: reader
:no_rights
grant select on all tables in schema makegood to ":role";
:later_tables
:short_waits
alter role ":role" set statement_timeout = '10min';
:cleared
create policy ":role all" on makegood.request for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.inbox for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.event for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.audit for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.node for all to ":role" using (true) with check (true);
:working_tables
:own_writers
