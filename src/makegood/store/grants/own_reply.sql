kind in (:outcomes) and :honest and exists (select 1 from makegood.step s join makegood.task t on t.id = s.task
    where s.task = inbox.task and t.app = ':app' and s.agent = ':agent' and s.idx = (:body ->> 'idx')::integer)
