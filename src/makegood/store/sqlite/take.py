"""Taking: fills an agent's free slots with waiting requests, best first. Their deadlines start now.

Each action costs one lookup in the index of waiting requests. See ``priority_ageing`` for lookups by age, and
``model.rates`` for agents with a rate.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from makegood.model.blame import ONCE
from makegood.model.messages import Request
from makegood.model.rates import Pace, pace
from makegood.payload.codec import UNREADABLE
from makegood.store import rows
from makegood.store.priority_ageing import PRIORITIES, Ageing, rank
from makegood.store.records import Offer, Taken
from makegood.store.sqlite.commit import put_to_error
from makegood.store.sqlite.transaction import Row, WriteTransaction, are_numbers

WAITING = """
select task, idx, attempt, within, body, priority, sent_at from makegood_request
where agent = ? and action = ? and isolate = ? and taken_by is null and kind <> 'timer'
order by priority desc, sent_at limit ?
"""
_OF_ONE = """
select * from (
    select task, idx, attempt, within, body, priority, sent_at from makegood_request
    where agent = ?1 and action = ?2 and isolate = ?3 and priority = {n} and taken_by is null and kind <> 'timer'
    order by sent_at limit ?4
)
"""
WAITING_AGED = " union all ".join(_OF_ONE.format(n=n) for n in range(PRIORITIES))
"""The oldest of each priority."""
ANY = """
select 1 from makegood_request where agent = ? and taken_by is null and kind <> 'timer' limit 1
"""
"""Whether any request waits for an agent: mostly none does, however many actions the agent has."""
_PRIORITY, _SENT_AT = 5, 6
_TAKE = "update makegood_request set taken_by = ?, complete_by = ?, taken_at = ? where task = ? and idx = ? and attempt = ?"
_TAKE_TRIAL = f"""
update makegood_request set taken_by = ?, complete_by = ?, taken_at = ?, excused = coalesce((
    select s.failure_count - s.deaths < {ONCE} from makegood_step s
    where s.task = makegood_request.task and s.idx = makegood_request.idx
), 1)
where task = ? and idx = ? and attempt = ?
"""  # noqa: S608 - our own number
_ROLES = "select roles from makegood_node where id = ? and dead = 0 and stopped_at is null"
_LIVE = """
select info from makegood_node where dead = 0 and stopped_at is null and alive_until > ? and id <> ?
    and roles not like '% scheduler %'
"""
RATE = "select next from makegood_rate where agent = ?"
_RATE_USED = """
insert into makegood_rate (agent, next) values (?, ?) on conflict (agent) do update set next = excluded.next
"""


def take(tx: WriteTransaction, node: int, offers: Sequence[Offer], ageing: Ageing, *, alone: bool) -> Taken:
    """Give waiting requests to ``node``. The store's protocol has the rules for isolated requests."""
    roles = tx.rows(_ROLES, (node,))
    if not roles:  # declared dead or never registered: requests that it took would belong to nobody
        return Taken()
    schedules = " scheduler " in roles[0][0]
    taking = _Taking(tx, node, ageing, Taken())
    if not (schedules and alone and taking.one_isolated(offers)):
        for offer in offers:
            taking.fill(offer, isolations=(0,) if schedules else (0, 1))
    return taking.requests


def turn(tx: WriteTransaction, agent: str, rate: float, most: float) -> float | None:
    """Reserve a turn for a further try; the store's protocol says more."""
    agent_pace = _pace(tx, agent, rate)
    wait = agent_pace.turn(most)
    if wait is not None:
        tx.run(_RATE_USED, (agent, agent_pace.after(1)))
    return wait


def _pace(tx: WriteTransaction, agent: str, rate: float) -> Pace:
    turn_rows = tx.rows(RATE, (agent,))
    return pace(turn_rows[0][0] if turn_rows else None, tx.now, rate)


@dataclass(slots=True)
class _Taking:
    tx: WriteTransaction
    node: int
    ageing: Ageing
    requests: Taken

    def fill(self, offer: Offer, *, isolations: tuple[int, ...]) -> bool:
        """Give the best waiting requests to an offer. Returns whether there were any."""
        agent_pace = self._pace(offer)
        slots = offer.slots if agent_pace is None else min(offer.slots, agent_pace.most)
        waiting = self._waiting(replace(offer, slots=slots), isolations) if slots else []
        count = self._give(waiting, agent_pace, _TAKE_TRIAL if offer.trial else _TAKE)
        if count and agent_pace is not None:
            self.tx.run(_RATE_USED, (offer.agent, agent_pace.after(count)))
        if agent_pace is not None and slots < offer.slots and count == slots:
            self.requests.again[offer.agent] = agent_pace.again(count)
        return count > 0

    def one_isolated(self, offers: Sequence[Offer]) -> bool:
        """Give one isolated request whose agent runs only in processes with a Scheduler.

        Returns whether there was one.
        """
        elsewhere: set[str] | None = None
        for offer in offers:
            single_offer = replace(offer, slots=min(offer.slots, 1))
            if not self._waiting(single_offer, (1,)):
                continue
            if elsewhere is None:
                infos = [rows.node_info(info) for (info,) in self.tx.rows(_LIVE, (self.tx.now, self.node))]
                elsewhere = {agent.agent for info in infos for agent in info.agents}
            if offer.agent not in elsewhere and self.fill(single_offer, isolations=(1,)):
                return True
        return False

    def _pace(self, offer: Offer) -> Pace | None:
        if offer.rate is None:
            return None
        return _pace(self.tx, offer.agent, offer.rate)

    def _waiting(self, offer: Offer, isolations: tuple[int, ...]) -> list[Row]:
        """Return the best waiting requests for an offer, at most its ``slots``."""
        candidates: list[Row] = []
        if offer.slots < 1:
            return candidates
        tx, ageing = self.tx, self.ageing
        step = 0.0 if offer.trial else ageing.step  # a trial request is chosen by age alone
        ages = offer.trial or (step is not None and ageing.due(offer.agent, tx.now))
        actions = dict.fromkeys(offer.actions) if tx.rows(ANY, (offer.agent,)) else ()
        for action in actions:
            for isolate in isolations:
                sql = WAITING_AGED if ages else WAITING
                candidates += tx.rows(sql, (offer.agent, action, isolate, offer.slots))
        for row in [row for row in candidates if not are_numbers(*row[1:4], *row[5:])]:
            candidates.remove(row)
            reason = "a request of it cannot be read: a column of numbers holds something else"
            put_to_error(tx, None, row[0], reason, seqs=())
        if ages and step is not None:
            candidates.sort(key=lambda row: rank(row[_PRIORITY], row[_SENT_AT], step))
        else:
            candidates.sort(key=lambda row: (-row[_PRIORITY], row[_SENT_AT]))
        best = candidates[: offer.slots]
        oldest = max((tx.now - row[_SENT_AT] for row in best), default=0.0) if ages else None
        ageing.record(offer.agent, full=len(candidates) >= offer.slots, oldest=oldest, now=tx.now)
        return best

    def _give(self, waiting: Sequence[Row], agent_pace: Pace | None, take: str) -> int:
        claim_rows: list[Row] = []
        for task, idx, attempt, within, body, _, sent_at in waiting:
            delay = 0.0 if agent_pace is None else agent_pace.delay(len(claim_rows))
            try:
                request: Request = rows.read_request(body, within + delay, self.tx.now - sent_at, self.tx.now)
                complete_by = self.tx.now + delay + within
            except UNREADABLE as fault:
                put_to_error(self.tx, None, task, f"a request of it cannot be read: {fault}", seqs=())
                continue
            self.requests.append(replace(request, delay=delay) if delay else request)
            claim_rows.append((self.node, complete_by, self.tx.now, task, idx, attempt))
        self.tx.many(take, claim_rows)
        return len(claim_rows)
