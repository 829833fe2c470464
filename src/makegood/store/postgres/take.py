"""Claiming requests: fills an agent's free slots with waiting requests, best first;
their deadlines start now.

One statement serves all offers. Per offer and priority it finds the oldest requests, locks each, and skips
those that another process has locked, until the slots are full. (For aged queries see ``priority_ageing``.)
Agents with a rate need a transaction that holds the rate's row. Requests that must not run beside a Scheduler
have an index of their own, which is nearly always empty.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from makegood.model.blame import ONCE
from makegood.model.rates import Pace, pace
from makegood.payload.codec import UNREADABLE
from makegood.store import rows
from makegood.store.postgres.claim import PRIORITIES
from makegood.store.postgres.decision_rows import columns
from makegood.store.postgres.transaction import Row, WriterGoneError, WriteTransaction, within
from makegood.store.priority_ageing import Ageing, rank
from makegood.store.records import Offer, Taken
from makegood.store.scan_floors import Floors

_TAKE = """
with writer as (select 1 from makegood.writer where id = $1 and number = $2 for update),
me as (
    select n.roles like '% scheduler %' as schedules from makegood.node n, writer where n.id = $4
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
@found    where not exists (select 1 from apart)
),
locked as materialized (select (select count(*) from apart) + (select count(*) from found) as n from writer),
at as materialized (select extract(epoch from clock_timestamp())::float8 as now, n from locked),
taken as (
    update makegood.request r set taken_by = $4, taken_at = at.now, complete_by = at.now + r.within, taken_writer = $1, taken_number = $3
    from at cross join (select * from apart union all select * from found) x
    where (r.task, r.idx, r.attempt) between (x.task, x.idx, x.attempt) and (x.task, x.idx, x.attempt)
    returning r.task, r.idx, r.attempt, r.agent, r.priority, r.sent_at, at.now - r.sent_at as waited, r.within, r.body, r.taken_at
),
mark as (update makegood.writer w set number = $3, at = at.now, outcome = null from at where w.id = $1 and at.n > 0)
select t.*, (select count(*) from writer) as writer from (select 1) one left join taken t on true
"""
# Per offer and priority, from where the last query ended, or from the bottom.
_BEST = """found as (
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
"""
# Per offer, the oldest of each priority, and of these the best by rank; for a trial call, by age alone. The
# commit releases the rows that were locked but not claimed.
_AGED = """found as (
    select r.task, r.idx, r.attempt
    from me cross join unnest($5::text[], $6::text[], $7::int[]) with ordinality as o (agent, actions, slots, n) cross join lateral (
        select r.task, r.idx, r.attempt from unnest($10::int[]) with ordinality as p (priority, n) cross join lateral (
            select r.task, r.idx, r.attempt, r.sent_at from makegood.request r
            where r.taken_by is null and r.kind <> 'timer' and r.agent = o.agent and r.priority = p.priority
                and r.sent_at > ($8::float8[])[(o.n - 1) * cardinality($10::int[]) + p.n]
                and r.action = any (string_to_array(o.actions, ',')) and not (r.isolate and me.schedules)
            order by r.sent_at limit o.slots for no key update skip locked
        ) r
        order by r.sent_at - p.priority * ($11::float8[])[o.n] limit o.slots
    ) r
"""
TAKE = _TAKE.replace("@found", _BEST)
TAKE_AGED = _TAKE.replace("@found", _AGED)
TAKE_TRIAL = TAKE_AGED.replace(
    "set taken_by = $4,",
    f"""set taken_by = $4, excused = r.agent = any ($12::text[]) and coalesce(
        (select s.failure_count - s.deaths < {ONCE} from makegood.step s where (s.task, s.idx) between (x.task, x.idx) and (x.task, x.idx)), true
    ),""",  # noqa: S608 - our own number
)

_NO_AGEING = 1e10
"""Seconds that count as one priority where age does not count."""

RATES = """
select r.agent, r.next from makegood.rate r where r.agent = any ($1::text[]) order by r.agent for no key update
"""
_NOW = "select extract(epoch from clock_timestamp())::float8 as now"
_RATE = "insert into makegood.rate (agent, next) values ($1, 0) on conflict do nothing"
_USED = """
update makegood.rate r set next = x.next from unnest($1::text[], $2::float8[]) as x (agent, next)
where r.agent between x.agent and x.agent
"""
_DELAYED = """
update makegood.request r set complete_by = $4::float8 + x.delay + r.within
from unnest($1::bigint[], $2::int[], $3::int[], $5::float8[]) as x (task, idx, attempt, delay)
where (r.task, r.idx, r.attempt) between (x.task, x.idx, x.attempt) and (x.task, x.idx, x.attempt)
"""
# All of ``within``, not only what is left: the agent counts from when it asked, which may be long ago.
_TAKEN = """
select task, idx, attempt, agent, priority, sent_at, extract(epoch from clock_timestamp())::float8 - sent_at as waited, within, body, taken_at
from makegood.request where taken_by = $1 and taken_writer = $2 and taken_number = $3
"""


@dataclass(slots=True)
class Got:
    """Claimed requests."""

    rows: list[Row] = field(default_factory=list)
    """Their rows."""
    delays: dict[tuple[int, int, int], float] = field(default_factory=dict)
    """The delay of each request, for agents with a rate."""
    again: dict[str, float] = field(default_factory=dict)
    """When to ask again, for agents with a rate."""


@dataclass(frozen=True, slots=True)
class Taking:
    """A claim of requests for ``node``; for isolated requests see the protocol."""

    node: int
    offers: Sequence[Offer]
    floors: Floors
    ageing: Ageing
    now: float
    """This process's clock."""
    alone: bool = False

    async def work(self, tx: WriteTransaction) -> Got:
        """Claim waiting requests: in one statement, or in a transaction if there is a rate."""
        offers = [offer for offer in self.offers if offer.slots > 0 and offer.actions]
        if not offers:
            return Got()
        if any(offer.rate is not None for offer in offers):
            return await within(tx, lambda tx: self._claim_at_pace(tx, offers))
        return Got(await self._best(tx, offers))

    async def _best(self, tx: WriteTransaction, offers: Sequence[Offer]) -> list[Row]:
        agents = [offer.agent for offer in offers]
        ages = any(offer.trial or self.ageing.due(offer.agent, self.now) for offer in offers)

        async def look(bottom: bool) -> list[Row]:  # noqa: FBT001 - as ``scan`` calls it
            return await self._take(tx, offers, ages=ages, bottom=bottom)

        claim_rows = await self.floors.scan(("take", *agents), look)
        for offer in offers:
            waits = [row["waited"] for row in claim_rows if row["agent"] == offer.agent]
            oldest = max(waits, default=0.0) if ages else None
            self.ageing.record(offer.agent, full=len(waits) >= offer.slots, oldest=oldest, now=self.now)
        for row in claim_rows:
            self.floors.advance((row["agent"], row["priority"]), row["sent_at"])
        return claim_rows

    async def _take(
        self, tx: WriteTransaction, offers: Sequence[Offer], *, ages: bool, bottom: bool
    ) -> list[Row]:
        begin = [
            -1.0 if bottom else self.floors.floor((offer.agent, priority))
            for offer in offers
            for priority in PRIORITIES
        ]
        tx.is_sent = True
        trials = [offer.agent for offer in offers if offer.trial]
        usual = _NO_AGEING if self.ageing.step is None else self.ageing.step
        steps = {offer.agent: 0.0 if offer.trial else usual for offer in offers}
        sql = TAKE_TRIAL if trials else TAKE_AGED if ages else TAKE
        age_values: list[Any] = [list(steps.values())] if ages else []
        if trials:
            age_values.append(trials)
        result_rows = await tx.rows(
            sql, tx.writer, tx.before, tx.number, self.node,
            [offer.agent for offer in offers], [",".join(offer.actions) for offer in offers], [offer.slots for offer in offers],
            begin, self.alone, PRIORITIES, *age_values,
        )  # fmt: skip
        if not result_rows[0]["writer"]:
            raise WriterGoneError
        claim_rows = [row for row in result_rows if row["task"] is not None]
        tx.has_mark = bool(claim_rows)
        if ages:
            claim_rows.sort(key=lambda row: rank(row["priority"], row["sent_at"], steps[row["agent"]]))
        else:
            claim_rows.sort(key=lambda row: (-row["priority"], row["sent_at"]))
        return claim_rows

    async def _claim_at_pace(self, tx: WriteTransaction, offers: Sequence[Offer]) -> Got:
        """Claim no more than the rates allow, locking them until the commit; record when
        each request may begin.
        """
        rate_offers = {offer.agent: offer for offer in offers if offer.rate is not None}
        paces = await _paces(tx, {agent: offer.rate or 1.0 for agent, offer in rate_offers.items()})
        limits = {
            agent: min(rate_offers[agent].slots, agent_pace.most) for agent, agent_pace in paces.items()
        }
        bounded_offers = [replace(offer, slots=limits.get(offer.agent, offer.slots)) for offer in offers]
        bounded_offers = [offer for offer in bounded_offers if offer.slots > 0]
        result = Got(await self._best(tx, bounded_offers) if bounded_offers else [])
        uses: dict[str, int] = dict.fromkeys(paces, 0)
        for row in result.rows:
            if (agent := row["agent"]) in paces:
                result.delays[row["task"], row["idx"], row["attempt"]] = paces[agent].delay(uses[agent])
                uses[agent] += 1
        late = {key: delay for key, delay in result.delays.items() if delay > 0}
        if late:
            now = next(iter(paces.values())).now
            await tx.run(_DELAYED, *columns(sorted(late), 3), now, [late[key] for key in sorted(late)])
        next_turns = {agent: paces[agent].after(n) for agent, n in uses.items() if n}
        if next_turns:
            await tx.run(_USED, list(next_turns), list(next_turns.values()))
        for agent, n in uses.items():
            if n == limits[agent] < rate_offers[agent].slots:
                result.again[agent] = paces[agent].again(n)
        tx.idle = not (result.rows or next_turns)
        return result


async def _paces(tx: WriteTransaction, rates: Mapping[str, float]) -> dict[str, Pace]:
    """Return the state of each agent's rate, locked until the commit."""
    next_turns: dict[str, float] = {row["agent"]: row["next"] for row in await tx.rows(RATES, sorted(rates))}
    if len(next_turns) < len(rates):
        for agent in sorted(set(rates) - set(next_turns)):
            await tx.run(_RATE, agent)
        next_turns = {row["agent"]: row["next"] for row in await tx.rows(RATES, sorted(rates))}
    (row,) = await tx.rows(_NOW)
    return {agent: pace(next_turns[agent], row["now"], rate) for agent, rate in rates.items()}


async def turn(tx: WriteTransaction, agent: str, rate: float, most: float) -> float | None:
    """Reserve a turn for a further try; the store's protocol says more."""
    agent_pace = (await _paces(tx, {agent: rate}))[agent]
    wait = agent_pace.turn(most)
    tx.idle = wait is None
    if wait is not None:
        await tx.run(_USED, [agent], [agent_pace.after(1)])
    return wait


async def recover_claims(tx: WriteTransaction, node: int) -> Got:
    """Return what was claimed under this number, if that was committed but its answer lost."""
    return Got(await tx.rows(_TAKEN, node, tx.writer, tx.number))


def read(result: Got) -> tuple[Taken, list[tuple[int, str]]]:
    """Return requests from their rows, and (task, reason) of unreadable ones."""
    requests = Taken((), result.again)
    unreadable: list[tuple[int, str]] = []
    for row in result.rows:
        delay = result.delays.get((row["task"], row["idx"], row["attempt"]), 0.0)
        try:
            request = rows.read_request(row["body"], row["within"] + delay, row["waited"], row["taken_at"])
            requests.append(replace(request, delay=delay) if delay else request)
        except UNREADABLE as fault:
            unreadable.append((row["task"], f"a request of it cannot be read: {fault}"))
    return requests, unreadable
