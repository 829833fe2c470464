-- :role: supervisor
:no_rights
grant select on all tables in schema makegood to ":role";
:writer_rights
:node_rights
grant update (dead) on makegood.node to ":role";
grant update (state, locked_by, ready_seq, failure_count, lost, task_expired, undo_by), delete on makegood.task to ":role";
grant delete on makegood.attribute, makegood.lane, makegood.signal to ":role";
grant insert (task, name, id, at, who, digest) on makegood.signal to ":role";
grant update (progress, moment, next_at, buffer_at, last_task, paused_at, paused_until, paused_by, paused_why) on makegood.schedule to ":role";
:firing_rights
grant update (state, attempt, failure_count), delete on makegood.step to ":role";
grant update (starved), delete on makegood.request to ":role";
grant insert (task, kind, at, body, db_user) on makegood.inbox to ":role";
grant insert (kind, task, step, text, standing, ended_at, ended_why, at), update (text, task, standing, ended_at, ended_why, logged, told, tell_at, tries), delete on makegood.alert to ":role";
grant insert (act, task, kind, who, why, verdict, reason, state, at, change, db_user), delete on makegood.audit to ":role";
grant insert (task, at, node, moves, note, attempts), delete on makegood.event to ":role";
grant update (visible_at), delete on makegood.message to ":role";
grant insert (at, kind, who, node, task, step, attempt, epoch, against, what), delete on makegood.refusal to ":role";
grant insert (at, epoch, kind, tasks, task), delete on makegood.supervisor_decision to ":role";
grant insert (minute, seen, submitted, processed, undone, errors, steps, latencies), update (seen, submitted, processed, undone, errors, steps, latencies), delete on makegood.minute to ":role";
grant insert, update (outcome, at), delete on makegood.bulk_item to ":role";
grant update (state, cursor, free_at, sent, applied, noop, refused, ended_at), delete on makegood.bulk_act to ":role";
grant insert (name, holder, nonce, epoch, ttl, expires_at, taken_at), update (holder, nonce, epoch, ttl, expires_at, taken_at) on makegood.lease to ":role";
grant insert (name, epoch, holder, began_at, released), update (ended_at, released), delete on makegood.lease_term to ":role";
grant update (generation, system_id, timeline) on makegood.generation to ":role";
grant execute on function makegood.close_writers to ":role";
grant update on sequence makegood.ready to ":role";
grant update on sequence makegood.alert_id_seq to ":role";
grant update on sequence makegood.event_seq_seq to ":role";
grant update on sequence makegood.inbox_seq_seq to ":role";
grant update on sequence makegood.message_seq_seq to ":role";
grant update on sequence makegood.node_id_seq to ":role";
:later_tables
:short_waits
:cleared
create policy ":role all" on makegood.request for all to ":role" using (true) with check (true);
create policy ":role select" on makegood.inbox for select to ":role" using (true);
create policy ":role insert" on makegood.inbox for insert to ":role" with check ((not (kind in (:acts, 'signal')) and :honest) or (:bulk_command) or (:bulk_signal) or (:schedule_command));
create policy ":role all" on makegood.event for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.audit for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.node for all to ":role" using (true) with check (true);
:working_tables
:own_writers
