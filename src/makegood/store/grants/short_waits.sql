alter role ":role" set idle_in_transaction_session_timeout = '1min';
alter role ":role" set lock_timeout = '10s';
