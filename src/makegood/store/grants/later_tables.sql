do $do$ begin
    execute format('alter default privileges for role %I in schema makegood grant select on tables to ":role"',
        (select pg_get_userbyid(nspowner) from pg_namespace where nspname = 'makegood'));
end $do$;
