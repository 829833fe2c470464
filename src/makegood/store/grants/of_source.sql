kind in ('source_away', 'source_refused') and task is null and standing is not distinct from kind || ' 0 ' || step and strpos(text, '`') = 0
