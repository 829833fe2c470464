-- :role: operator
:no_rights
grant select on all tables in schema makegood to ":role";
grant insert (id, number, at), update (number, outcome, at) on makegood.writer to ":role";
grant insert (task, kind, at, body, db_user) on makegood.inbox to ":role";
grant insert (act, task, kind, who, why, verdict, reason, state, at, change, db_user) on makegood.audit to ":role";
grant insert (kind, task, step, text, standing, ended_at, ended_why, at), update (task, text) on makegood.alert to ":role";
grant insert (id, kind, wanted, who, why, db_user, counted, most, rate, state, at, cursor, free_at, sent, applied, noop, refused, stopped_by, more) on makegood.bulk_act to ":role";
grant insert (name, epoch), update (epoch) on makegood.step_down to ":role";
grant update (state, body, tries, visible_at, ended_at) on makegood.message to ":role";
grant update (tries, due_at, dead) on makegood.listener to ":role";
grant execute on function makegood.close_writers to ":role";
grant execute on function makegood.acknowledge_alerts to ":role";
grant execute on function makegood.stop_bulk_act to ":role";
grant execute on function makegood.end_dead_letters to ":role";
grant execute on function makegood.drop_messages to ":role";
grant execute on function makegood.drop_listeners to ":role";
grant execute on function makegood.drop_notices to ":role";
:later_tables
alter role ":role" set idle_in_transaction_session_timeout = '1min';
alter role ":role" set lock_timeout = '10s';
:cleared
create policy ":role all" on makegood.request for all to ":role" using (true) with check (true);
create policy ":role select" on makegood.inbox for select to ":role" using (true);
create policy ":role insert" on makegood.inbox for insert to ":role" with check (kind in (:acts) and :honest and db_user = session_user);
create policy ":role all" on makegood.event for all to ":role" using (true) with check (true);
create policy ":role select" on makegood.audit for select to ":role" using (true);
create policy ":role insert" on makegood.audit for insert to ":role" with check (db_user = session_user);
create policy ":role all" on makegood.node for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.rate for all to ":role" using (true) with check (true);
create policy ":role select" on makegood.bulk_act for select to ":role" using (true);
create policy ":role insert" on makegood.bulk_act for insert to ":role" with check (db_user = session_user);
create policy ":role all" on makegood.task for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.step for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.notice for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.listener for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.message for all to ":role" using (true) with check (true);
create policy ":role select" on makegood.alert for select to ":role" using (true);
create policy ":role insert" on makegood.alert for insert to ":role" with check (kind = 'test' and task is null and standing is not distinct from 'test 0 ' || step and strpos(text, '`') = 0);
create policy ":role update" on makegood.alert for update to ":role" using (kind = 'test') with check (kind = 'test' and task is null and standing is not distinct from 'test 0 ' || step and strpos(text, '`') = 0);
create policy ":role all" on makegood.refusal for all to ":role" using (true) with check (true);
create policy ":role select" on makegood.writer for select to ":role" using (true);
create policy ":role insert" on makegood.writer for insert to ":role" with check (db_user = session_user);
create policy ":role update" on makegood.writer for update to ":role" using (db_user = session_user) with check (db_user = session_user);
