kind = 'signal' and :honest and :body -> 'act' is null and db_user is null and abs(at - extract(epoch from clock_timestamp())::float8) < 60
