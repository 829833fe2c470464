grant insert (id, app, workflow, key, fingerprint, state, goal, on_failure, submission, priority, ready_seq, locked_by, epoch, within, complete_by, undo_within, cause, failure_count, lost, task_expired, correlation_id, trace, created_at, static) on makegood.task to ":role";
grant insert (task, name, value) on makegood.attribute to ":role";
grant insert (task, app, name, seq, at_once, when_taken, state) on makegood.lane to ":role";
grant insert (task, idx, kind, name, agent, action, state, attempt, round, failure_count, asked, deaths, flags, spec) on makegood.step to ":role";
