"""Taking: an agent's free slots are filled with waiting requests, best first; their complete-by starts now.

One statement for all offers: per offer and priority the oldest requests, locked as they are found and passed over when
another process has them locked, until the slots are full. A request that must not run beside a Scheduler is looked
for in an index of its own, which is nearly always empty.
"""

from collections.abc import Sequence

import msgspec

from makegood.messages import Request
from makegood.store import rows
from makegood.store.postgres.claim import PRIORITIES
from makegood.store.postgres.floors import Floors
from makegood.store.postgres.transaction import LaneGoneError, Row, Transaction
from makegood.store.records import Offer

TAKE = """
with lane as (select 1 from makegood.writer where id = $1 and number = $2 for update),
me as (
    select n.roles like '% scheduler %' as schedules from makegood.node n, lane where n.id = $4
        and n.dead::int = 0 and coalesce(n.stopped_at, 0) = 0
),
apart as (
    select r.task, r.idx, r.attempt from me cross join unnest($5::text[], $6::text[]) as o (agent, actions) cross join lateral (
        select r.task, r.idx, r.attempt from makegood.request r
        where r.isolate and r.taken_by is null and r.kind <> 'timer' and r.agent = o.agent
            and r.action = any (string_to_array(o.actions, ','))
        order by r.priority desc, r.sent_at, r.task limit 1 for no key update skip locked
    ) r
    where me.schedules and $9 and not exists (
        select 1 from makegood.node n
        where not n.dead and n.stopped_at is null and n.alive_until > extract(epoch from clock_timestamp())::float8
            and n.id <> $4 and n.roles not like '% scheduler %'
            and convert_from(n.info, 'UTF8')::jsonb -> 'agents' @> jsonb_build_array(jsonb_build_object('agent', o.agent))
    )
    limit 1
),
found as (
    select r.task, r.idx, r.attempt
    from me cross join unnest($5::text[], $6::text[], $7::int[]) with ordinality as o (agent, actions, slots, n) cross join lateral (
        select r.task, r.idx, r.attempt from generate_subscripts($10::int[], 1) as p cross join lateral (
            select r.task, r.idx, r.attempt from makegood.request r
            where r.taken_by is null and r.kind <> 'timer' and r.agent = o.agent and r.priority = ($10::int[])[p]
                and r.sent_at > ($8::float8[])[(o.n - 1) * cardinality($10::int[]) + p]
                and r.action = any (string_to_array(o.actions, ',')) and not (r.isolate and me.schedules)
            order by r.sent_at limit o.slots for no key update skip locked
        ) r
        limit o.slots
    ) r
    where not exists (select 1 from apart)
),
locked as materialized (select (select count(*) from apart) + (select count(*) from found) as n from lane),
at as materialized (select extract(epoch from clock_timestamp())::float8 as now, n from locked),
taken as (
    update makegood.request r set taken_by = $4, complete_by = at.now + r.within, taken_writer = $1, taken_number = $3
    from at cross join (select * from apart union all select * from found) x
    where (r.task, r.idx, r.attempt) between (x.task, x.idx, x.attempt) and (x.task, x.idx, x.attempt)
    returning r.task, r.idx, r.attempt, r.agent, r.priority, r.sent_at, r.within, r.body
),
mark as (update makegood.writer w set number = $3, at = at.now, outcome = null from at where w.id = $1 and at.n > 0)
select t.*, (select count(*) from lane) as lane from (select 1) one left join taken t on true
"""
_TAKEN = """
select task, idx, attempt, agent, priority, sent_at, greatest(0, complete_by - extract(epoch from clock_timestamp())::float8) as within,
    body
from makegood.request where taken_by = $1 and taken_writer = $2 and taken_number = $3
"""


async def take(
    tx: Transaction, node: int, offers: Sequence[Offer], floors: Floors, *, alone: bool
) -> list[Row]:
    """Give waiting requests to ``node``; the rules for isolated ones are the protocol's."""
    wanted = [offer for offer in offers if offer.slots > 0 and offer.actions]
    if not wanted:
        return []
    agents = [offer.agent for offer in wanted]
    swept = floors.due(("take", *agents))
    got = await _take(tx, node, wanted, None if swept else floors, alone=alone)
    if not got and not swept and floors.due(("take", *agents), empty=True):
        got = await _take(tx, node, wanted, None, alone=alone)
    for row in got:
        floors.passed((row["agent"], row["priority"]), row["sent_at"])
    return got


async def _take(
    tx: Transaction, node: int, wanted: Sequence[Offer], floors: Floors | None, *, alone: bool
) -> list[Row]:
    begin = [
        -1.0 if floors is None else floors.floor((offer.agent, priority))
        for offer in wanted
        for priority in PRIORITIES
    ]
    tx.sent = True
    got = await tx.rows(
        TAKE, tx.lane, tx.before, tx.number, node,
        [offer.agent for offer in wanted], [",".join(offer.actions) for offer in wanted], [offer.slots for offer in wanted],
        begin, alone, PRIORITIES,
    )  # fmt: skip
    if not got[0]["lane"]:
        raise LaneGoneError
    found = [row for row in got if row["task"] is not None]
    tx.marked = bool(found)
    found.sort(key=lambda row: (-row["priority"], row["sent_at"]))
    return found


async def recovered(tx: Transaction, node: int) -> list[Row]:
    """Return what was taken under this number, when that was committed and the answer lost."""
    return await tx.rows(_TAKEN, node, tx.lane, tx.number)


def read(taken: Sequence[Row]) -> tuple[list[Request], list[tuple[int, str]]]:
    """Return requests from their rows, and (task, reason) of those that cannot be read."""
    requests: list[Request] = []
    unreadable: list[tuple[int, str]] = []
    for row in taken:
        try:
            requests.append(rows.read_request(row["body"], row["within"]))
        except msgspec.MsgspecError as fault:
            unreadable.append((row["task"], f"a request of it cannot be read: {fault}"))
    return requests, unreadable
