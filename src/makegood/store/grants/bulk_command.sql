kind in (:acts) and :honest and exists (select 1 from makegood.bulk_item i join makegood.bulk_act b on b.id = i.bulk
    where i.task = inbox.task and i.act = :body -> 'act' ->> 'id' and b.kind = inbox.kind and b.db_user = inbox.db_user
        and b.who = :body -> 'act' ->> 'who')
