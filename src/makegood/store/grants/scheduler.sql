-- :role: scheduler
:no_rights
grant select on all tables in schema makegood to ":role";
:writer_rights
:node_rights
grant update (state, goal, cause, submission, ready_seq, locked_by, epoch, complete_by, undo_by, failure_count, lost, task_expired, told, notified, ended_at, static, result, start_at, start_wall) on makegood.task to ":role";
grant insert (task, idx, kind, name, agent, action, state, attempt, round, failure_count, asked, deaths, flags, spec, result, late, error), update (state, attempt, round, failure_count, asked, deaths, flags, spec, result, late, error, first_sent, runs_until) on makegood.step to ":role";
grant insert (task, idx, attempt, kind, agent, action, priority, isolate, starved, sent_at, taken_at, taken_by, within, complete_by, answered, body), update (sent_at, within, complete_by, cancelled), delete on makegood.request to ":role";
grant update (seq, when_taken, state) on makegood.lane to ":role";
grant insert (task, kind, at, body) on makegood.inbox to ":role";
grant insert (body, used, used_at), update (body, used, used_at) on makegood.signal to ":role";
grant delete on makegood.inbox, makegood.notice to ":role";
grant insert (task, sequence, body) on makegood.notice to ":role";
grant insert (task, host, url, sent, last, due_at) on makegood.listener to ":role";
grant update (sent, last, tries, due_at, taken_by, dead, error), delete on makegood.listener to ":role";
grant insert (kind, task, step, text, standing, ended_at, ended_why, at), update (text, task, standing, ended_at, ended_why, logged, told, tell_at, tries) on makegood.alert to ":role";
grant insert (act, task, kind, who, why, verdict, reason, state, at, change, db_user) on makegood.audit to ":role";
grant insert (task, at, node, moves, note, attempts) on makegood.event to ":role";
grant insert (queue, id, body, kind, correlation_id, reply_to, task, sequence, headers, sent_at, visible_at, expires_at, remember, digest) on makegood.message to ":role";
grant insert (at, kind, who, node, task, step, attempt, epoch, against, what) on makegood.refusal to ":role";
grant execute on function makegood.close_writers to ":role";
:later_tables
:short_waits
:cleared
create policy ":role all" on makegood.request for all to ":role" using (true) with check (true);
create policy ":role select" on makegood.inbox for select to ":role" using (true);
create policy ":role insert" on makegood.inbox for insert to ":role" with check (kind = 'cancel' and :honest);
create policy ":role delete" on makegood.inbox for delete to ":role" using (true);
create policy ":role all" on makegood.event for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.audit for all to ":role" using (true) with check (true);
create policy ":role select" on makegood.node for select to ":role" using (true);
create policy ":role insert" on makegood.node for insert to ":role" with check (true);
create policy ":role update" on makegood.node for update to ":role" using (db_user = session_user) with check (db_user = session_user);
:working_tables
:own_writers
