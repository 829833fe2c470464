grant insert (name, roles, host, pid, started_at, alive_until, dead, info), update (alive_until, info, stopped_at) on makegood.node to ":role";
