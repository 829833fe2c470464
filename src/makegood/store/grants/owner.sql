-- ":role" migrates
do $do$ declare found record; begin
    execute format('grant create on database %I to ":role"', current_database());
    if to_regnamespace('makegood') is not null then
        alter schema makegood owner to ":role";
        for found in select c.oid::regclass as table from pg_class c
            where c.relnamespace = 'makegood'::regnamespace and c.relkind in ('r', 'p')
        loop
            execute format('alter table %s owner to ":role"', found.table);
        end loop;
        if to_regclass('makegood.ready') is not null then
            alter sequence makegood.ready owner to ":role";
        end if;
        for found in select p.oid::regprocedure as function from pg_proc p where p.pronamespace = 'makegood'::regnamespace loop
            execute format('alter function %s owner to ":role"', found.function);
        end loop;
    end if;
end $do$;
