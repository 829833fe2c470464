revoke all on all tables in schema makegood from ":role";
revoke all on all sequences in schema makegood from ":role";
revoke all on all functions in schema makegood from ":role";
grant usage on schema makegood to ":role";
