create policy ":role select" on makegood.writer for select to ":role" using (true);
create policy ":role insert" on makegood.writer for insert to ":role" with check (db_user = session_user);
create policy ":role update" on makegood.writer for update to ":role" using (db_user = session_user) with check (db_user = session_user);
