"""Taking: fills an agent's free slots with waiting requests, best first. Their deadlines start now.

Each action costs one lookup in the index of waiting requests. See ``priority_ageing`` for lookups by age, and
``model.rates`` for agents with a rate.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

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
_TAKE = "update makegood_request set taken_by = ?, complete_by = ? where task = ? and idx = ? and attempt = ?"
_TAKE_TRIAL = "update makegood_request set excused = 1, taken_by = ?, complete_by = ? where task = ? and idx = ? and attempt = ?"
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
            taking.fill(offer, isolated=(0,) if schedules else (0, 1))
    return taking.taken


@dataclass(slots=True)
class _Taking:
    tx: WriteTransaction
    node: int
    ageing: Ageing
    taken: Taken

    def fill(self, offer: Offer, *, isolated: tuple[int, ...]) -> bool:
        """Give the best waiting requests to an offer. Returns whether there were any."""
        paced = self._pace(offer)
        slots = offer.slots if paced is None else min(offer.slots, paced.most)
        waiting = self._waiting(replace(offer, slots=slots), isolated) if slots else []
        given = self._give(waiting, paced, _TAKE_TRIAL if offer.trial else _TAKE)
        if paced is not None and (given or offer.spent):
            self.tx.run(_RATE_USED, (offer.agent, paced.after(given)))
        if paced is not None and slots < offer.slots and given == slots:
            self.taken.again[offer.agent] = paced.again(given)
        return given > 0

    def one_isolated(self, offers: Sequence[Offer]) -> bool:
        """Give one isolated request whose agent runs only in processes with a Scheduler.

        Returns whether there was one.
        """
        elsewhere: set[str] | None = None
        for offer in offers:
            one = replace(offer, slots=min(offer.slots, 1))
            if not self._waiting(one, (1,)):
                continue
            if elsewhere is None:
                infos = [rows.node_info(info) for (info,) in self.tx.rows(_LIVE, (self.tx.now, self.node))]
                elsewhere = {agent.agent for info in infos for agent in info.agents}
            if offer.agent not in elsewhere and self.fill(one, isolated=(1,)):
                return True
        return False

    def _pace(self, offer: Offer) -> Pace | None:
        if offer.rate is None:
            return None
        kept = self.tx.rows(RATE, (offer.agent,))
        return pace(kept[0][0] if kept else None, self.tx.now, offer.rate, offer.spent)

    def _waiting(self, offer: Offer, isolated: tuple[int, ...]) -> list[Row]:
        """Return the best waiting requests for an offer, at most its ``slots``."""
        found: list[Row] = []
        if offer.slots < 1:
            return found
        tx, ageing = self.tx, self.ageing
        step = 0.0 if offer.trial else ageing.step  # a trial request is chosen by age alone
        aged = offer.trial or (step is not None and ageing.due(offer.agent, tx.now))
        actions = dict.fromkeys(offer.actions) if tx.rows(ANY, (offer.agent,)) else ()
        for action in actions:
            for isolate in isolated:
                sql = WAITING_AGED if aged else WAITING
                found += tx.rows(sql, (offer.agent, action, isolate, offer.slots))
        for row in [row for row in found if not are_numbers(*row[1:4], *row[5:])]:
            found.remove(row)
            why = "a request of it cannot be read: a column of numbers holds something else"
            put_to_error(tx, None, row[0], why, seqs=())
        if aged and step is not None:
            found.sort(key=lambda row: rank(row[_PRIORITY], row[_SENT_AT], step))
        else:
            found.sort(key=lambda row: (-row[_PRIORITY], row[_SENT_AT]))
        best = found[: offer.slots]
        oldest = max((tx.now - row[_SENT_AT] for row in best), default=0.0) if aged else None
        ageing.found(offer.agent, full=len(found) >= offer.slots, oldest=oldest, now=tx.now)
        return best

    def _give(self, waiting: Sequence[Row], paced: Pace | None, take: str) -> int:
        taken: list[Row] = []
        for task, idx, attempt, within, body, _, sent_at in waiting:
            try:
                delay = 0.0 if paced is None else paced.delay(len(taken))
                request: Request = rows.read_request(body, within + delay, self.tx.now - sent_at)
                complete_by = self.tx.now + delay + within
            except UNREADABLE as fault:
                put_to_error(self.tx, None, task, f"a request of it cannot be read: {fault}", seqs=())
                continue
            self.taken.append(replace(request, delay=delay) if delay else request)
            taken.append((self.node, complete_by, task, idx, attempt))
        self.tx.many(take, taken)
        return len(taken)
