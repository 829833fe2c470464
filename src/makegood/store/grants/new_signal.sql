abs(at - extract(epoch from clock_timestamp())::float8) < 60
