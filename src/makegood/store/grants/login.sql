do $do$ begin
    if not exists (select 1 from pg_roles where rolname = ':role') then
        create role ":role" login;
    end if;
    execute format('grant connect on database %I to ":role"', current_database());
end $do$;
