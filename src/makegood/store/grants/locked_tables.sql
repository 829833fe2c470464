-- All tables at once or none: one after another would be a deadlock with the processes that work on them
do $do$ declare tables text; begin
    select string_agg(c.oid::regclass::text, ', ' order by c.oid) into tables from pg_class c
        where c.relnamespace = to_regnamespace('makegood') and c.relkind in ('r', 'p');
    for attempt in 1 .. 3000 loop
        exit when tables is null;
        begin
            execute format('lock table %s in access exclusive mode nowait', tables);
            exit;
        exception when lock_not_available then
            if attempt = 3000 then
                raise exception 'the tables of makegood were in use for too long' using hint = 'apply this again when less is going on';
            end if;
            perform pg_sleep(random() / 100);
        end;
    end loop;
end $do$;
