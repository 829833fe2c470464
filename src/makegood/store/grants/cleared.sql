do $do$ declare found record; begin
    for found in select p.polname, c.relname from pg_policy p join pg_class c on c.oid = p.polrelid
        where c.relnamespace = 'makegood'::regnamespace and starts_with(p.polname::text, ':role' || ' ')
    loop
        execute format('drop policy %I on makegood.%I', found.polname, found.relname);
    end loop;
end $do$;
