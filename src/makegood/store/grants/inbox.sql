-- :role: inbox
:no_rights
:store_rights
:node_rights
:submission_rights
grant select, insert (kind, task, step, text, standing, ended_at, ended_why, at), update (text, task, standing, ended_at, ended_why) on makegood.alert to ":role";
grant execute on function makegood.close_writers to ":role";
:message_functions
alter role ":role" set idle_in_transaction_session_timeout = '10min';
:cleared
create policy ":role all" on makegood.request for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.event for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.audit for all to ":role" using (true) with check (true);
create policy ":role select" on makegood.node for select to ":role" using (true);
create policy ":role insert" on makegood.node for insert to ":role" with check (roles in (' inbox ', ' relay ', ' inbox relay ', ' relay inbox '));
create policy ":role update" on makegood.node for update to ":role" using (db_user = session_user) with check (roles in (' inbox ', ' relay ', ' inbox relay ', ' relay inbox ') and db_user = session_user);
create policy ":role all" on makegood.rate for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.bulk_act for all to ":role" using (true) with check (true);
:submission_policies
create policy ":role select" on makegood.alert for select to ":role" using (((kind = 'dead_letter' and task is null and starts_with(step, 'outbox/') and strpos(text, '`') = 0) or (kind = 'role_failing' and (step = 'relay' or starts_with(step, 'relay ') or starts_with(step, 'inbox ')))) or kind in ('no_leader', 'source_away', 'source_refused'));
create policy ":role insert" on makegood.alert for insert to ":role" with check ((((kind = 'dead_letter' and task is null and starts_with(step, 'outbox/') and strpos(text, '`') = 0 and standing is not distinct from 'dead_letter 0 ' || step) or (:role_failing and (step = 'relay' or starts_with(step, 'relay ') or starts_with(step, 'inbox ')))) or (:no_leader) or (:of_source)) and abs(at - extract(epoch from clock_timestamp())::float8) < 60);
create policy ":role update" on makegood.alert for update to ":role" using (((kind = 'dead_letter' and task is null and starts_with(step, 'outbox/') and strpos(text, '`') = 0) or (kind = 'role_failing' and (step = 'relay' or starts_with(step, 'relay ') or starts_with(step, 'inbox ')))) or kind in ('no_leader', 'source_away', 'source_refused')) with check (((kind = 'dead_letter' and task is null and starts_with(step, 'outbox/') and strpos(text, '`') = 0 and standing is not distinct from 'dead_letter 0 ' || step) or (:role_failing and (step = 'relay' or starts_with(step, 'relay ') or starts_with(step, 'inbox ')))) or (:no_leader) or (:of_source) or (((kind = 'dead_letter' and task is null and starts_with(step, 'outbox/') and strpos(text, '`') = 0) or (kind = 'role_failing' and (step = 'relay' or starts_with(step, 'relay ') or starts_with(step, 'inbox '))) or kind in ('source_away', 'source_refused')) and standing is null));
create policy ":role all" on makegood.refusal for all to ":role" using (true) with check (true);
create policy ":role all" on makegood.writer for all to ":role" using (db_user = session_user) with check (db_user = session_user);
