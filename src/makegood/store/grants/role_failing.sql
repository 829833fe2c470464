kind = 'role_failing' and task is null and standing is not distinct from 'role_failing 0 ' || step and strpos(text, '`') = 0
