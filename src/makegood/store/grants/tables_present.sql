do $do$ begin
    if to_regclass('makegood.schema_version') is null then
        raise exception 'there are no tables of makegood here yet'
            using hint = 'apply `makegood store grants --role owner`, run `makegood store migrate` as that role, then apply this';
    elsif (select name from makegood.schema_version order by version desc limit 1) is distinct from ':migration' then
        raise exception 'these grants are for schema version :version' using hint = 'run `makegood store migrate`, or print the grants with the makegood that is installed';
    end if;
end $do$;
