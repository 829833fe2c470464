-- :role: :address
:no_rights
:store_rights
:node_rights
grant select, update (taken_by, taken_at, taken_writer, taken_number, complete_by, answered, excused) on makegood.request to ":role";
grant select, insert (agent, next), update (next) on makegood.rate to ":role";
grant select (id, app, state) on makegood.task to ":role";
grant select (task, idx, agent, failure_count, deaths) on makegood.step to ":role";
grant select (task, kind, body), insert (task, kind, at, body) on makegood.inbox to ":role";
grant insert (task, at, node, moves, note, attempts) on makegood.event to ":role";
grant insert (at, kind, who, node, task, step, attempt, epoch, against, what) on makegood.refusal to ":role";
grant select (kind, task, step, text, standing), insert (kind, task, step, text, standing, ended_at, ended_why, at), update (text, task, standing, ended_at, ended_why) on makegood.alert to ":role";
grant execute on function makegood.close_writers to ":role";
:short_waits
:cleared
create policy ":role all" on makegood.writer for all to ":role" using (db_user = session_user) with check (db_user = session_user);
create policy ":role all" on makegood.request for all to ":role" using (agent = ':address') with check (agent = ':address');
create policy ":role all" on makegood.rate for all to ":role" using (agent = ':address') with check (agent = ':address');
create policy ":role select" on makegood.task for select to ":role" using (app = ':app');
create policy ":role select" on makegood.step for select to ":role" using (agent = ':agent');
create policy ":role select" on makegood.inbox for select to ":role" using (:own_reply);
create policy ":role insert" on makegood.inbox for insert to ":role" with check (:own_reply);
create policy ":role insert" on makegood.event for insert to ":role" with check (exists (select 1 from makegood.step s join makegood.task t on t.id = s.task
    where s.task = event.task and t.app = ':app' and s.agent = ':agent') and abs(at - extract(epoch from clock_timestamp())::float8) < 60);
create policy ":role insert" on makegood.refusal for insert to ":role" with check (kind = 'reply' and exists (select 1 from makegood.step s join makegood.task t on t.id = s.task
    where s.task = refusal.task and t.app = ':app' and s.agent = ':agent') and abs(at - extract(epoch from clock_timestamp())::float8) < 60);
create policy ":role select" on makegood.node for select to ":role" using (true);
create policy ":role insert" on makegood.node for insert to ":role" with check (roles in (' agent '));
create policy ":role update" on makegood.node for update to ":role" using (db_user = session_user) with check (roles in (' agent ') and db_user = session_user);
create policy ":role select" on makegood.alert for select to ":role" using (((kind = 'circuit_open' and step = ':address') or (kind = 'role_failing' and step in ('agents (answering)', 'agents (decoding)', 'agents (setup)', 'agents (taking)', 'circuits'))) or kind = 'no_leader');
create policy ":role insert" on makegood.alert for insert to ":role" with check ((((kind = 'circuit_open' and step = ':address' and standing is not distinct from 'circuit_open 0 ' || step and (task is null or exists (select 1 from makegood.step s join makegood.task t on t.id = s.task
    where s.task = alert.task and t.app = ':app' and s.agent = ':agent')) and :open_circuit) or (:role_failing and step in ('agents (answering)', 'agents (decoding)', 'agents (setup)', 'agents (taking)', 'circuits'))) or (:no_leader)) and abs(at - extract(epoch from clock_timestamp())::float8) < 60);
create policy ":role update" on makegood.alert for update to ":role" using (((kind = 'circuit_open' and step = ':address') or (kind = 'role_failing' and step in ('agents (answering)', 'agents (decoding)', 'agents (setup)', 'agents (taking)', 'circuits'))) or kind = 'no_leader') with check (((kind = 'circuit_open' and step = ':address' and standing is not distinct from 'circuit_open 0 ' || step and (task is null or exists (select 1 from makegood.step s join makegood.task t on t.id = s.task
    where s.task = alert.task and t.app = ':app' and s.agent = ':agent')) and :open_circuit) or (:role_failing and step in ('agents (answering)', 'agents (decoding)', 'agents (setup)', 'agents (taking)', 'circuits'))) or (:no_leader) or (((kind = 'circuit_open' and step = ':address') or (kind = 'role_failing' and step in ('agents (answering)', 'agents (decoding)', 'agents (setup)', 'agents (taking)', 'circuits'))) and standing is null));
