-- :role: reader
:no_rights
grant select on all tables in schema makegood to ":role";
:later_tables
alter role ":role" set idle_in_transaction_session_timeout = '1min';
alter role ":role" set lock_timeout = '10s';
alter role ":role" set statement_timeout = '10min';
:cleared
create policy ":role all" on makegood.request for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.inbox for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.event for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.audit for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.node for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.rate for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.bulk_act for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.task for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.step for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.notice for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.listener for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.message for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.alert for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.refusal for all to ":role" using (true) with check (true);
create policy ":role select" on makegood.writer for select to ":role" using (true);
create policy ":role insert" on makegood.writer for insert to ":role" with check (db_user = session_user);
create policy ":role update" on makegood.writer for update to ":role" using (db_user = session_user) with check (db_user = session_user);
