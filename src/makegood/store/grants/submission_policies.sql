create policy ":role select" on makegood.task for select to ":role" using (true);
create policy ":role insert" on makegood.task for insert to ":role" with check (state in ('pending', 'sleeping', 'queued') and locked_by is null and epoch = 0 and complete_by is null and failure_count = 0
    and abs(created_at - extract(epoch from clock_timestamp())::float8) < 60 and case when state in ('pending', 'queued') then start_at is null and start_wall is null and abs(ready_seq / 1e6::float8 - extract(epoch from clock_timestamp())::float8) < 60
    else start_at - ready_seq / 1e6::float8 between -60 and 7260 and start_at - extract(epoch from clock_timestamp())::float8 between -60 and 315576060 end);
create policy ":role select" on makegood.attribute for select to ":role" using (true);
create policy ":role insert" on makegood.attribute for insert to ":role" with check (makegood.is_new(task));
create policy ":role select" on makegood.lane for select to ":role" using (true);
create policy ":role insert" on makegood.lane for insert to ":role" with check (makegood.is_new(task) and state in ('waiting', 'out') and abs(seq / 1e6::float8 - extract(epoch from clock_timestamp())::float8) < 60);
create policy ":role select" on makegood.signal for select to ":role" using (true);
create policy ":role insert" on makegood.signal for insert to ":role" with check (:new_signal);
create policy ":role select" on makegood.inbox for select to ":role" using (true);
create policy ":role insert" on makegood.inbox for insert to ":role" with check (:own_signal);
create policy ":role select" on makegood.step for select to ":role" using (true);
create policy ":role insert" on makegood.step for insert to ":role" with check (makegood.is_new(task));
create policy ":role select" on makegood.notice for select to ":role" using (true);
create policy ":role insert" on makegood.notice for insert to ":role" with check (makegood.is_new(task));
create policy ":role select" on makegood.listener for select to ":role" using (true);
create policy ":role insert" on makegood.listener for insert to ":role" with check (makegood.is_new(task));
create policy ":role select" on makegood.message for select to ":role" using (true);
create policy ":role insert" on makegood.message for insert to ":role" with check ((task is null and not starts_with(id, (select g.store_id from makegood.generation g) || '-')) or makegood.is_new(task));
create policy ":role update" on makegood.message for update to ":role" using (true) with check (true);
