kind = 'cancel' and :honest and db_user is null and exists (select 1 from makegood.schedule s join makegood.attribute a on a.task = s.last_task
    where s.last_task = inbox.task and a.name = 'makegood.schedule' and a.value = s.name and :body -> 'act' ->> 'who' = 'schedule ' || s.app || '/' || s.name)
