grant execute on function makegood.is_new to ":role";
grant execute on function makegood.settle_messages to ":role";
grant execute on function makegood.drop_expired to ":role";
grant execute on function makegood.raise_dead_letter to ":role";
