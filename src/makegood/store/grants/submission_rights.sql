grant select on makegood.task, makegood.attribute, makegood.step, makegood.listener, makegood.notice to ":role";
grant insert (id, app, workflow, key, fingerprint, state, goal, on_failure, submission, priority, ready_seq, locked_by, epoch, within, complete_by, undo_within, cause, failure_count, lost, task_expired, correlation_id, trace, created_at, static, told, notified, start_at, start_wall) on makegood.task to ":role";
grant insert (task, name, value) on makegood.attribute to ":role";
grant insert (task, idx, kind, name, agent, action, state, attempt, round, failure_count, asked, deaths, flags, spec) on makegood.step to ":role";
grant insert (task, sequence, body) on makegood.notice to ":role";
grant insert (task, host, url, sent, last, due_at) on makegood.listener to ":role";
grant select, insert (queue, id, body, kind, correlation_id, reply_to, task, sequence, headers, sent_at, visible_at, expires_at, remember), update (taken_by, visible_at, tries, state, ended_at, expires_at, error) on makegood.message to ":role";
grant select, insert (app, name, spec, plan, digest, progress, moment, next_at, made_at), update (spec, plan, digest, progress, moment, next_at) on makegood.schedule to ":role";
