do $do$ declare guarded text; begin
    foreach guarded in array string_to_array('request inbox event audit node rate bulk_act task attribute lane signal step notice listener message alert refusal writer', ' ') loop
        if not (select relrowsecurity from pg_class where oid = ('makegood.' || guarded)::regclass) then
            execute format('alter table makegood.%I enable row level security', guarded);
        end if;
    end loop;
end $do$;
