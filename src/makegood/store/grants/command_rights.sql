grant insert (task, kind, at, body, db_user) on makegood.inbox to ":role";
grant insert (task, name, id, step, at, who, digest) on makegood.signal to ":role";
grant insert (act, task, kind, who, why, verdict, reason, state, at, change, db_user) on makegood.audit to ":role";
grant insert (kind, task, step, text, standing, ended_at, ended_why, at), update (task, text) on makegood.alert to ":role";
grant insert (id, kind, wanted, who, why, db_user, counted, most, rate, state, at, cursor, free_at, sent, applied, noop, refused, stopped_by, more, signal, value) on makegood.bulk_act to ":role";
grant insert (name, epoch), update (epoch) on makegood.step_down to ":role";
grant update (progress, moment, next_at, buffer_at, last_task, paused_at, paused_until, paused_by, paused_why) on makegood.schedule to ":role";
:firing_rights
