-- :role: submitter
:no_rights
grant select on makegood.generation, makegood.schema_version, makegood.node, makegood.lease, makegood.writer to ":role";
grant insert (id, number, at), update (number, outcome, at) on makegood.writer to ":role";
grant select on makegood.task, makegood.step, makegood.listener, makegood.notice to ":role";
grant insert (id, app, workflow, key, fingerprint, state, goal, on_failure, submission, priority, ready_seq, locked_by, epoch, within, complete_by, undo_within, cause, failure_count, lost, task_expired, correlation_id, trace, created_at, static, told, notified) on makegood.task to ":role";
grant insert (task, idx, kind, name, agent, action, state, attempt, round, failure_count, asked, deaths, flags, spec) on makegood.step to ":role";
grant insert (task, sequence, body) on makegood.notice to ":role";
grant insert (task, host, url, sent, last, due_at) on makegood.listener to ":role";
grant select, insert (queue, id, body, kind, correlation_id, reply_to, task, sequence, headers, sent_at, visible_at, expires_at, remember), update (taken_by, visible_at, tries, state, ended_at, expires_at, error) on makegood.message to ":role";
grant select on makegood.request, makegood.inbox, makegood.audit, makegood.event to ":role";
grant execute on function makegood.close_writers to ":role";
grant execute on function makegood.is_new to ":role";
grant execute on function makegood.settle_messages to ":role";
grant execute on function makegood.drop_expired to ":role";
grant execute on function makegood.raise_dead_letter to ":role";
alter role ":role" set idle_in_transaction_session_timeout = '10min';
:cleared
create policy ":role all" on makegood.request for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.inbox for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.event for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.audit for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.node for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.rate for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.bulk_act for all to ":role" using (true) with check (true);
create policy ":role select" on makegood.task for select to ":role" using (true);
create policy ":role insert" on makegood.task for insert to ":role" with check (state = 'pending' and locked_by is null and epoch = 0 and complete_by is null and failure_count = 0
    and abs(created_at - extract(epoch from clock_timestamp())::float8) < 60 and abs(ready_seq / 1e6::float8 - extract(epoch from clock_timestamp())::float8) < 60);
create policy ":role select" on makegood.step for select to ":role" using (true);
create policy ":role insert" on makegood.step for insert to ":role" with check (makegood.is_new(task));
create policy ":role select" on makegood.notice for select to ":role" using (true);
create policy ":role insert" on makegood.notice for insert to ":role" with check (makegood.is_new(task));
create policy ":role select" on makegood.listener for select to ":role" using (true);
create policy ":role insert" on makegood.listener for insert to ":role" with check (makegood.is_new(task));
create policy ":role select" on makegood.message for select to ":role" using (true);
create policy ":role insert" on makegood.message for insert to ":role" with check ((task is null and not starts_with(id, (select g.store_id from makegood.generation g) || '-')) or makegood.is_new(task));
create policy ":role update" on makegood.message for update to ":role" using (true) with check (true);
create policy ":role all" on makegood.alert for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.refusal for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.writer for all to ":role" using (db_user = session_user) with check (db_user = session_user);
