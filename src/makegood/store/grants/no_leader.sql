kind = 'no_leader' and task is null and step = '' and standing is not distinct from 'no_leader 0 ' and text ~
    '^no supervisor has led for [0-9.e+]+ s: what is overdue is not found, and nobody frees the tasks of dead processes; start `makegood supervisor`$'
