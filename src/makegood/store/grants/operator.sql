-- :role: operator
:no_rights
grant select on all tables in schema makegood to ":role";
:writer_rights
:command_rights
grant update (state, body, tries, visible_at, ended_at) on makegood.message to ":role";
grant update (tries, due_at, dead) on makegood.listener to ":role";
grant execute on function makegood.close_writers to ":role";
grant execute on function makegood.acknowledge_alerts to ":role";
grant execute on function makegood.stop_bulk_act to ":role";
grant execute on function makegood.end_dead_letters to ":role";
grant execute on function makegood.drop_messages to ":role";
grant execute on function makegood.drop_schedule to ":role";
grant execute on function makegood.drop_listeners to ":role";
grant execute on function makegood.drop_notices to ":role";
:later_tables
:short_waits
:cleared
:command_policies
