-- :role: submitter
:no_rights
:store_rights
:submission_rights
grant select on makegood.request, makegood.inbox, makegood.audit, makegood.event to ":role";
grant execute on function makegood.close_writers to ":role";
:message_functions
alter role ":role" set idle_in_transaction_session_timeout = '10min';
:cleared
create policy ":role all" on makegood.request for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.event for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.audit for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.node for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.rate for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.bulk_act for all to ":role" using (true) with check (true);
:submission_policies
create policy ":role all" on makegood.alert for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.refusal for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.writer for all to ":role" using (db_user = session_user) with check (db_user = session_user);
