-- ":role" takes part in elections
:election_tables
revoke all on all tables in schema makegood_election from ":role";
grant usage on schema makegood_election to ":role";
grant select, insert, update (holder, nonce, epoch, ttl, expires_at, taken_at) on makegood_election.lease to ":role";
grant select, insert, update (ended_at, released), delete on makegood_election.term to ":role";
alter role ":role" set idle_in_transaction_session_timeout = '1min';
