-- :role: console
:no_rights
grant select on all tables in schema makegood to ":role";
:writer_rights
:command_rights
grant execute on function makegood.close_writers to ":role";
grant execute on function makegood.acknowledge_alerts to ":role";
grant execute on function makegood.stop_bulk_act to ":role";
:later_tables
:short_waits
:cleared
:command_policies
