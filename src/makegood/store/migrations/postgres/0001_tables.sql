-- All tables. Points in time are seconds since 1970 on the server's clock (clock_timestamp()), lengths of time are
-- seconds, payloads are JSON bytes. Everything lives in a schema of its own, so that a user's tables can live beside it
-- and commit together with it. Rows are found by whoever must act on them, through small indexes that hold only what is
-- unfinished; their dead entries are walked until a vacuum, hence the eager autovacuum on the tables that churn.
create schema makegood;

create table makegood.schema_version (
    version integer primary key,
    name text not null,
    applied_at double precision not null
);

-- The store's own random id, part of every key that a remote service sees, and its generation: raised when the history
-- under it is another one than before (another timeline after a promotion, another cluster after a restore).
create table makegood.generation (
    store_id text not null,
    generation integer not null,
    system_id text not null,
    timeline text not null
);
insert into makegood.generation (store_id, generation, system_id, timeline)
values (substr(md5(gen_random_uuid()::text || clock_timestamp()::text), 1, 16), 1, '', '');

-- One row per writing connection, its id drawn at random by the process. A transaction carries its number here, in its own commit: an ambiguous commit is
-- resolved by one look at this row, and a number once passed over can never be used again by a statement that comes late.
-- `outcome` keeps what the answer would have said besides "done". `db_user`: the login that wrote it; with roles of few rights no other
-- login can change or lock it.
create table makegood.writer (
    id bigint primary key,
    number bigint not null,
    outcome bigint[],
    at double precision not null,
    db_user text not null default session_user
) with (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Drawn each time a task becomes pending.
create sequence makegood.ready as bigint;

-- Not touched per step: at the claim, when its direction changes, and at rest. `told`, `notified`: the last state that its submitter
-- was notified of, and the number of notices so far; null without a reply_to. `start_at`: when a task that sleeps begins; `start_wall`: null
-- after a delay, '' at a fixed moment, else the wall time and its zone.
create table makegood.task (
    id bigint primary key,
    app text not null,
    workflow text not null,
    key text collate "C",
    fingerprint bytea not null,
    state text not null,
    goal text not null,
    on_failure text not null,
    submission integer not null,
    priority integer not null check (priority between 0 and 9),
    ready_seq bigint not null,
    locked_by bigint,
    epoch bigint not null,
    within double precision,
    complete_by double precision,
    undo_within double precision,
    undo_by double precision,
    cause text not null,
    failure_count integer not null,
    lost integer not null,
    task_expired boolean not null,
    correlation_id text collate "C",
    trace text,
    told text,
    notified integer,
    created_at double precision not null,
    ended_at double precision,
    static bytea not null,
    result bytea,
    start_at double precision,
    start_wall text
) with (fillfactor = 70);
create unique index task_key on makegood.task (key, workflow, app) where key is not null;
create index task_claim on makegood.task (priority, ready_seq) where state = 'pending' and locked_by is null;
create index task_sleeping on makegood.task (priority, ready_seq) include (app, workflow)
    where state = 'sleeping' and locked_by is null;
create index task_asleep on makegood.task (id) where state = 'sleeping';
create index task_held on makegood.task (locked_by) where locked_by is not null;
create index task_complete_by on makegood.task (complete_by)
    where complete_by is not null and goal = 'forward' and not task_expired and ended_at is null;
create index task_undo_by on makegood.task (undo_by) where undo_by is not null;
create index task_error on makegood.task (id) where state = 'error';
create index task_queued on makegood.task (priority, ready_seq)
    where state = 'queued' and locked_by is null and ready_seq < 9223372036854775807;
create index task_in_queue on makegood.task (id) include (app, workflow) where state = 'queued';
create index task_correlation on makegood.task (correlation_id, id) where correlation_id is not null;

-- What submitters say of tasks so that people find them. (Texts by which tasks are found compare byte by byte: a range of the index is a prefix.)
create table makegood.attribute (
    task bigint not null,
    name text collate "C" not null,
    value text collate "C" not null,
    primary key (task, name)
);
create index attribute_value on makegood.attribute (name, value, task);

-- The places of tasks in lanes. `state`: waiting, held, or out (its task has ended, or has not begun to wait). `seq`: its order among those that
-- wait. Places stay for as long as their tasks. A submitter only adds them. The `ready_seq` of a queued task whose lanes are taken is the largest number
-- (it is *parked*): whoever frees a lane gives a new one to those that are next. `when_taken`: wait, refuse or cancel.
create table makegood.lane (
    task bigint not null,
    app text collate "C" not null,
    name text collate "C" not null,
    seq bigint not null,
    at_once integer not null,
    when_taken text not null,
    state text not null,
    primary key (task, name)
) with (fillfactor = 80);
create index lane_waiting on makegood.lane (app, name, seq, task) where state = 'waiting';
create index lane_at_once on makegood.lane (app, name, at_once) where state = 'waiting' and at_once > 1;
create index lane_held on makegood.lane (app, name) where state = 'held';
create index lane_name on makegood.lane (name, task);

-- Inserted whole at submission; no index but its key, so that changes of state stay on their page.
-- `first_sent`: when an agent had the first request of its round and direction; null while only the request in flight knows (`taken_at`).
-- `runs_until`: until when an earlier attempt may still run whose process seemed dead before its deadline; null: none.
create table makegood.step (
    task bigint not null,
    idx integer not null,
    kind text not null,
    name text not null,
    agent text not null,
    action text not null,
    state text not null,
    attempt integer not null,
    round integer not null,
    failure_count integer not null,
    asked integer not null,
    deaths integer not null,
    flags integer not null,
    spec bytea not null,
    result bytea,
    late bytea,
    error text,
    first_sent double precision,
    runs_until double precision,
    primary key (task, idx)
) with (fillfactor = 60);

-- Only what is in flight: what agents take and what the Supervisor scans. A timer has attempt 0 and is due at complete_by.
-- `excused`: it was under way when its agent's circuit opened, so its silence counts as no failure. `taken_at`: when an agent had it.
-- `cancelled`: an agent has it, and nobody needs its answer any more.
create table makegood.request (
    task bigint not null,
    idx integer not null,
    attempt integer not null,
    kind text not null,
    agent text not null,
    action text not null,
    priority integer not null,
    isolate boolean not null,
    starved boolean not null,
    excused boolean not null default false,
    cancelled boolean not null default false,
    sent_at double precision not null,
    taken_by bigint,
    taken_writer bigint,
    taken_number bigint,
    taken_at double precision,
    within double precision not null,
    complete_by double precision,
    answered boolean not null,
    body bytea,
    primary key (task, idx, attempt)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0);
create index request_take on makegood.request (agent, priority, sent_at) where taken_by is null and kind <> 'timer';
create index request_isolated on makegood.request (agent) where isolate and taken_by is null and kind <> 'timer';
create index request_judge on makegood.request (complete_by) where complete_by is not null and kind <> 'timer';
create index request_cancelled on makegood.request (taken_by) where cancelled;

-- Messages to tasks. A sequence never comes again: a Scheduler remembers which it has seen. `db_user`: the login of the database under
-- which an operator acted, as the database itself reports it (`who` is what the operator typed); null for all other messages.
create table makegood.inbox (
    seq bigint generated always as identity primary key,
    task bigint not null,
    kind text not null,
    at double precision not null,
    body bytea not null,
    db_user text
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
create index inbox_task on makegood.inbox (task);
create index inbox_expired on makegood.inbox (at) where kind = 'expired';

-- Signals to tasks: the memory of their ids, and of those that no step has used yet. `body`: its message, kept by the task; null while it lies
-- unread in the inbox, and once it is used. `used`: the step that used it. `step`: the only one that may, '' for any.
create table makegood.signal (
    task bigint not null,
    name text not null,
    id text not null,
    step text not null default '',
    seq bigint generated always as identity,
    at double precision not null,
    who text not null default '',
    digest bytea not null,
    body bytea,
    used integer,
    used_at double precision,
    primary key (task, name, id)
);

-- History: one row per task and commit, listing its moves. Append-only. `attempts`: how the attempts ended that the commit used, as
-- JSON; empty for none.
create table makegood.event (
    seq bigint generated always as identity,
    task bigint not null,
    at double precision not null,
    node bigint,
    moves bytea not null,
    note text not null,
    attempts bytea not null default ''
);
create unique index event_task on makegood.event (task, seq);

-- What became of operators' acts. `change`: what the act brought with it and replaced, such as corrected inputs, as JSON.
-- `db_user`: as in the inbox.
create table makegood.audit (
    act text primary key,
    task bigint not null,
    kind text not null,
    who text not null,
    why text not null,
    verdict text not null,
    reason text not null,
    state text not null,
    at double precision not null,
    change bytea,
    db_user text
);
create index audit_at on makegood.audit (at);
create index audit_task on makegood.audit (task, at);

-- `standing` names the cause of an alert until it has gone, so that it is raised once; then null. `logged`, `told` (to the webhook):
-- 0 nothing yet, 1 that it was raised, 2 that it ended. `tell_at`: when to try again, after so many `tries`. `acked_db_user`: the login
-- under which it was acknowledged (`acked_by` is what the operator typed).
create table makegood.alert (
    id bigint generated always as identity primary key,
    kind text not null,
    task bigint,
    step text not null,
    text text not null,
    at double precision not null,
    standing text,
    ended_at double precision,
    ended_why text not null default '',
    acked_at double precision,
    acked_by text not null default '',
    acked_why text not null default '',
    acked_db_user text,
    logged integer not null default 0,
    told integer not null default 0,
    tell_at double precision,
    tries integer not null default 0
);
create index alert_task on makegood.alert (task) where task is not null;
create unique index alert_standing on makegood.alert (standing) where standing is not null;
create index alert_open on makegood.alert (id) where ended_at is null;
create index alert_unlogged on makegood.alert (id) where logged = 0 or (logged = 1 and ended_at is not null);
create index alert_untold on makegood.alert (at) where told = 0 or (told = 1 and ended_at is not null);

-- Processes. Numbers are never given twice: a lock names its holder by number. `db_user`: as in `writer`.
create table makegood.node (
    id bigint generated always as identity primary key,
    name text not null,
    roles text not null,
    host text not null,
    pid integer not null,
    started_at double precision not null,
    alive_until double precision not null,
    stopped_at double precision,
    dead boolean not null,
    info bytea not null,
    db_user text not null default session_user
) with (fillfactor = 50);
create index node_alive on makegood.node (alive_until) where not dead and stopped_at is null;

-- Never deleted, so that an epoch never comes again.
create table makegood.lease (
    name text primary key,
    holder text,
    nonce text not null,
    epoch bigint not null,
    ttl double precision not null,
    expires_at double precision not null,
    taken_at double precision not null
) with (fillfactor = 50);

-- The last epoch of a lease whose leader an operator asked to step down. A table of its own: whoever may write it must not be able to lock the lease.
create table makegood.step_down (
    name text primary key,
    epoch bigint not null
);

-- Who held a lease when: for people. The lease itself is makegood.lease.
create table makegood.lease_term (
    name text not null,
    epoch bigint not null,
    holder text not null,
    began_at double precision not null,
    ended_at double precision,
    released boolean not null,
    primary key (name, epoch)
);

-- Queues that applications read and write. `state`: waiting (taken as well, while `visible_at` is ahead), dead, or done: then
-- only its id is remembered, until `expires_at`. A message that is taken can be taken again at `visible_at`; who took it is
-- told from who took it later by `tries`. `remember`: how long its id is known after it is done; null: not at all.
-- `digest`: of its first body, to know another message of the same id.
create table makegood.message (
    seq bigint generated always as identity primary key,
    queue text not null,
    id text not null,
    state text not null default 'waiting',
    body bytea not null,
    kind text not null default '',
    correlation_id text,
    reply_to text,
    task bigint,
    sequence integer,
    headers bytea,
    sent_at double precision not null,
    visible_at double precision not null,
    taken_by text,
    tries integer not null default 0,
    error text not null default '',
    ended_at double precision,
    expires_at double precision,
    remember double precision,
    digest bytea
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
create unique index message_id on makegood.message (queue, id);
create index message_take on makegood.message (queue, visible_at, seq) where state = 'waiting';
create index message_task on makegood.message (task, queue, seq) where task is not null;
create index message_dead on makegood.message (queue, seq) where state = 'dead';
create index message_expires on makegood.message (expires_at) where expires_at is not null;

-- Webhooks that are still to be told of a task: up to `sent` they were, up to `last` is to go. `due_at`: of the next try, or
-- when whoever took it (`taken_by`) has had it for too long; null once the listener is given up (`dead`). It goes with its last notice.
create table makegood.listener (
    task bigint primary key,
    host text not null,
    url text not null,
    sent integer not null,
    last integer not null,
    tries integer not null default 0,
    due_at double precision,
    taken_by bigint,
    dead boolean not null default false,
    error text not null default ''
);
create index listener_due on makegood.listener (host, due_at) where due_at is not null;
create index listener_failed on makegood.listener (dead, host) where tries > 0;

-- What is to be sent to webhooks: CloudEvents, as they are.
create table makegood.notice (
    task bigint not null,
    sequence integer not null,
    body bytea not null,
    primary key (task, sequence)
);

-- Agents with a rate: the moment from which their next call is free, over all processes.
create table makegood.rate (
    agent text primary key,
    next double precision not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Writes that a fence refused: of a Scheduler that lost a task ("decision"), a former leader ("term"), an agent that was late ("reply").
create table makegood.refusal (
    id bigint generated always as identity primary key,
    at double precision not null,
    kind text not null,
    who text not null,
    node bigint,
    task bigint,
    step text not null,
    attempt integer,
    epoch bigint,
    against bigint,
    what text not null
);
create index refusal_task on makegood.refusal (task) where task is not null;

-- Figures of a minute, which the leading Supervisor adds up. `seen`: how many of its seconds a leader observed.
create table makegood.minute (
    minute bigint primary key,
    seen double precision not null,
    submitted bigint not null,
    processed bigint not null,
    undone bigint not null,
    errors bigint not null,
    steps bigint not null,
    latencies bytea not null
);

-- Acts on all tasks that match. `stopped_db_user`: as `db_user`, of whoever stopped it. `cursor`: tasks with this id or a higher one are dealt with. `free_at`: when its rate allows the next command.
create table makegood.bulk_act (
    id text primary key,
    kind text not null,
    wanted bytea not null,
    who text not null,
    why text not null,
    db_user text,
    counted bigint not null,
    most bigint,
    rate double precision,
    state text not null,
    at double precision not null,
    ended_at double precision,
    cursor bigint not null,
    free_at double precision not null,
    sent bigint not null,
    applied bigint not null,
    noop bigint not null,
    refused bigint not null,
    stopped_by text not null,
    stopped_db_user text,
    more boolean not null,
    signal text,
    value bytea
) with (fillfactor = 50);
create index bulk_act_at on makegood.bulk_act (at);
create index bulk_act_open on makegood.bulk_act (at) where ended_at is null;

-- Its commands that no Scheduler has decided (`outcome` null), and some of those that were refused.
create table makegood.bulk_item (
    bulk text not null,
    task bigint not null,
    act text not null,
    outcome text,
    at double precision not null,
    primary key (bulk, task)
);
create index bulk_item_open on makegood.bulk_item (bulk) where outcome is null;

-- What the leading Supervisor did, for people: a row for each kind in each pass that did anything. `task` is one of `tasks`.
create table makegood.supervisor_decision (
    id bigint generated always as identity primary key,
    at double precision not null,
    epoch bigint not null,
    kind text not null,
    tasks integer not null,
    task bigint not null
);

-- Schedules. `spec`: times and policies, JSON; `plan`: the plan of its tasks, JSON. `progress`: the instant up to which its moments are dealt with, and
-- counts. `moment`: the next one, of the calendar; `next_at`: that moment and its jitter, or when to try again. `buffer_at`: a moment that waits for `last_task` to end.
create table makegood.schedule (
    app text not null,
    name text not null,
    spec bytea not null,
    plan bytea not null,
    digest bytea not null,
    progress bytea not null,
    moment double precision,
    next_at double precision,
    buffer_at double precision,
    last_task bigint,
    paused_at double precision,
    paused_until double precision,
    paused_by text,
    paused_why text,
    made_at double precision not null,
    primary key (app, name)
);
create index schedule_due on makegood.schedule (next_at) where next_at is not null;
create index schedule_buffered on makegood.schedule (app, name) where buffer_at is not null;

-- Functions for roles of few rights. Those with `security definer` act with the owner's rights: their search path is fixed, and only roles that
-- were granted one may call it. They replace rights on whole tables, since whoever may delete from a table may also lock it.

-- Whether this transaction has inserted a task, perhaps in a savepoint: its rows may be added then, and never later. A row that is visible
-- although the transaction that wrote it is still under way is our own. (It runs in the policy of each row that is added. Operators are named in
-- full, since it runs under the caller's search path.)
create function makegood.is_new(task bigint) returns boolean language plpgsql as $$
declare
    ours bigint := pg_catalog.pg_current_xact_id()::pg_catalog.text::bigint;
    wrote bigint;
    ahead bigint;
begin
    select t.xmin::pg_catalog.text::bigint into wrote from makegood.task t where t.id operator(pg_catalog.=) is_new.task;
    ahead := wrote operator(pg_catalog.-) (ours operator(pg_catalog.&) 4294967295::bigint);
    if ahead operator(pg_catalog.=) 0 then
        return true;
    elsif ahead is null then
        return false;
    elsif ahead operator(pg_catalog.>) 2147483647 then
        ahead := ahead operator(pg_catalog.-) 4294967296::bigint;
    elsif ahead operator(pg_catalog.<) (-2147483648)::bigint then
        ahead := ahead operator(pg_catalog.+) 4294967296::bigint;
    end if;
    if (ours operator(pg_catalog.+) ahead) operator(pg_catalog.<) 3 then
        return false;
    end if;
    return coalesce(pg_catalog.pg_xact_status(
        (ours operator(pg_catalog.+) ahead)::pg_catalog.text::pg_catalog.xid8
    ) operator(pg_catalog.=) 'in progress', false);
end $$;

-- Removes the caller's own rows of these connections, and those that nobody has used for a day.
create function makegood.close_writers(ids bigint[]) returns void
language sql security definer set search_path = pg_catalog, pg_temp as $$
    delete from makegood.writer where id in (
        select w.id from makegood.writer w
        where (w.id = any (ids) and w.db_user = session_user) or w.at < extract(epoch from clock_timestamp())::float8 - 86400
        for update skip locked
    )
$$;

-- Removes deliveries that were handled, or keeps only their ids; returns those that their receiver still had.
create function makegood.settle_messages(seqs bigint[], deliveries integer[]) returns setof bigint
language sql security definer set search_path = pg_catalog, pg_temp as $$
    with x as materialized (select * from unnest(seqs, deliveries) as x (seq, tries)),
    gone as (
        delete from makegood.message m using x
        where m.seq = x.seq and m.tries = x.tries and m.state = 'waiting' and m.taken_by is not null and m.remember is null
        returning m.seq
    ),
    kept as (
        update makegood.message m set state = 'done', body = '', headers = null, error = '', taken_by = null, task = null,
            ended_at = extract(epoch from clock_timestamp())::float8,
            expires_at = extract(epoch from clock_timestamp())::float8 + m.remember
        from x
        where m.seq = x.seq and m.tries = x.tries and m.state = 'waiting' and m.taken_by is not null and m.remember is not null
        returning m.seq
    )
    select seq from gone union all select seq from kept
$$;

-- Removes the expired messages of a queue, but those that somebody has locked: whoever sends does not wait for them.
create function makegood.drop_expired(name text) returns void
language sql security definer set search_path = pg_catalog, pg_temp as $$
    delete from makegood.message where seq in (
        select m.seq from makegood.message m
        where m.queue = name and m.state = 'waiting' and m.expires_at <= extract(epoch from clock_timestamp())::float8
        for update skip locked
    )
$$;

-- Removes messages of queues, dead or alive.
create function makegood.drop_messages(seqs bigint[]) returns void
language sql security definer set search_path = pg_catalog, pg_temp as $$
    delete from makegood.message where seq = any (seqs)
$$;

-- Removes a schedule; returns its name.
create function makegood.drop_schedule(app text, name text) returns setof text
language sql security definer set search_path = pg_catalog, pg_temp as $$
    delete from makegood.schedule s where s.app = drop_schedule.app and s.name = drop_schedule.name returning s.name
$$;

-- Remove what is still to be sent to the webhooks of tasks, and the webhooks.
create function makegood.drop_notices(tasks bigint[]) returns void
language sql security definer set search_path = pg_catalog, pg_temp as $$
    delete from makegood.notice where task = any (tasks)
$$;
create function makegood.drop_listeners(tasks bigint[]) returns void
language sql security definer set search_path = pg_catalog, pg_temp as $$
    delete from makegood.listener where task = any (tasks)
$$;

-- A word of a command line as a shell takes it; null if it cannot be pasted as it is.
create function makegood.shell_word(word text) returns text language sql immutable set search_path = pg_catalog, pg_temp as $$
    select case when word ~ '^[A-Za-z0-9_@%+=:,./-]+$' then word
        when word ~ '^[ -~]+$' and strpos(word, '`') = 0 then '''' || replace(word, '''', '''"''"''') || '''' end
$$;

-- Raises the alert of a dead letter: its text is made here, of the message itself. A command appears only if its words need no thought in a shell.
create function makegood.raise_dead_letter(number bigint) returns void
language sql security definer set search_path = pg_catalog, pg_temp as $$
    insert into makegood.alert as a (kind, task, step, text, standing, at)
    select 'dead_letter', null, m.queue || '/' || m.id,
        replace(format('message %s of queue %s could not be handled: %s', m.id, m.queue, m.error), '`', '''') || format('%s; see %s, then %s or `drop`',
            case when m.task is not null then ' (the later notices of task ' || (
                select string_agg(substr('0123456789abcdefghjkmnpqrstvwxyz', ((m.task >> 5 * n) & 31)::integer + 1, 1), '' order by n desc)
                from generate_series(0, 12) n
            ) || ' wait behind it)' else '' end,
            case when q.word is null then '`makegood queue list`' else '`makegood queue list --dead ' || q.dash || q.word || '`' end,
            case when q.word is null or i.word is null then 'replay it by its id, which is not fit for a command line,'
                else '`makegood queue replay ' || case when q.dash || i.dash <> '' then '-- ' else '' end || q.word || ' ' || i.word || '`' end),
        'dead_letter 0 ' || m.queue || '/' || m.id, extract(epoch from clock_timestamp())::float8
    from makegood.message m
        cross join lateral (select makegood.shell_word(m.queue), case when starts_with(m.queue, '-') then '-- ' else '' end) q (word, dash)
        cross join lateral (select makegood.shell_word(m.id), case when starts_with(m.id, '-') then '-- ' else '' end) i (word, dash)
    where m.seq = number and m.state = 'dead'
    on conflict (standing) where standing is not null do update set text = excluded.text where a.text <> excluded.text
$$;

-- Acknowledges open alerts under the caller's login; returns those that it met.
create function makegood.acknowledge_alerts(ids bigint[], who text, why text)
returns table (id bigint, kind text, task bigint)
language sql security definer set search_path = pg_catalog, pg_temp as $$
    update makegood.alert a set acked_at = extract(epoch from clock_timestamp())::float8, acked_by = acknowledge_alerts.who, acked_why = acknowledge_alerts.why,
        acked_db_user = session_user,
        standing = case when a.kind in ('generation', 'dead_letter', 'source_refused', 'near_limit', 'test') then null else a.standing end,
        ended_at = case when a.kind in ('generation', 'dead_letter', 'source_refused', 'near_limit', 'test') then extract(epoch from clock_timestamp())::float8 end,
        ended_why = case when a.kind in ('generation', 'dead_letter', 'source_refused', 'near_limit', 'test') then 'acknowledged' else '' end
    where a.id = any (ids) and a.acked_at is null and a.ended_at is null
    returning a.id, a.kind, a.task
$$;

-- Ends alerts of dead letters that are dead no more.
create function makegood.end_dead_letters(causes text[], whys text[]) returns void
language sql security definer set search_path = pg_catalog, pg_temp as $$
    update makegood.alert a set standing = null, ended_at = extract(epoch from clock_timestamp())::float8, ended_why = x.why
    from unnest(causes, whys) as x (name, why) where a.standing = x.name and a.kind = 'dead_letter'
$$;

-- Lets an act on many tasks send no more commands, under the caller's login; returns it if it was running.
create function makegood.stop_bulk_act(act text, who text) returns setof text
language sql security definer set search_path = pg_catalog, pg_temp as $$
    update makegood.bulk_act set state = 'stopping', stopped_by = stop_bulk_act.who, stopped_db_user = session_user
    where id = act and state = 'running' returning id
$$;

revoke execute on all functions in schema makegood from public;
