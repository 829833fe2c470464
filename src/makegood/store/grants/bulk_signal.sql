kind = 'signal' and :honest and :body -> 'act' is null and db_user is null and exists (select 1 from makegood.bulk_act b where b.kind = 'signal'
    and b.ended_at is null and b.signal = :body -> 'signal' ->> 0 and starts_with(:body -> 'signal' ->> 1, b.id || '/') and b.value = decode(:body ->> 'value', 'base64'))
