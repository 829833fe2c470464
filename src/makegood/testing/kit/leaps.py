"""Lets virtual time leap over spans in which nothing is due.

While no task is under way and nothing is in flight, processes only poll and send heartbeats: some 80,000
steps of the event loop in six hours. A leap moves the world's time, with it the store's clock and the
calendar, and holds the processes: for them no time passes, and their heartbeats and leases last so much
longer. It ends so long before the next due moment that every process polls before that, and sees it.
"""

from typing import Final

from makegood.options import Options
from makegood.store.records import NO_MOMENT
from makegood.testing.simulator.members import FleetMember
from makegood.testing.simulator.quiescence import Eye
from makegood.testing.simulator.world import SimulatedWorld

_LEAD: Final = 1.5
"""How many pauses of the Supervisor, or of polls, lie between the end of a leap and what is due."""

_UNDER_WAY = """
select exists (select 1 from makegood_task where state in ('pending', 'processing', 'undoing') or locked_by is not null)
    or exists (select 1 from makegood_inbox) or exists (select 1 from makegood_request where kind <> 'timer')
    or exists (select 1 from makegood_message where state = 'waiting') or exists (select 1 from makegood_listener where due_at is not null)
    or exists (select 1 from makegood_bulk_act where ended_at is null)
"""
_SLEEPER = f"select ready_seq from makegood_task where state = 'sleeping' and ready_seq < {NO_MOMENT} and (start_wall is null) = "  # noqa: S608 - a number
# What is due holds leaps up: it is about to be dealt with. Limits that have passed do not.
_BY_STORE = f"""
select min(due) from (
    select ready_seq / 1e6 as due from ({_SLEEPER} 1)
    union all select complete_by from makegood_task where state in ('sleeping', 'queued') and complete_by > ?1
    union all select undo_by from makegood_task where state = 'sleeping' and undo_by > ?1
)
"""  # noqa: S608 - our own text
_BY_CALENDAR = f"""
select min(due) from (
    select ready_seq / 1e6 as due from ({_SLEEPER} 0)
    union all select next_at from makegood_schedule where paused_at is null
    union all select paused_until from makegood_schedule where paused_at is not null
)
"""  # noqa: S608 - our own text
_HOLD = (
    "update makegood_node set alive_until = alive_until + ? where stopped_at is null",
    "update makegood_lease set expires_at = expires_at + ?1, taken_at = taken_at + ?1",
)


def lead(engine: Options) -> float:
    """Return for how many seconds nothing is leapt before what is due."""
    return _LEAD * max(engine.number("supervise_every"), engine.number("poll_every"))


def leap(world: SimulatedWorld, eye: Eye, most: float, *, ticker: object = None) -> float:
    """Let up to ``most`` seconds pass at once, if nothing happens in them; return how many did.

    ``ticker``: a timer of the world's own that may be late; others end a leap.
    """
    members = list(world.members.values())
    client = world.members["operator"].client
    engine = world.swarm.engine
    if world.storming or engine.poll_every is None or client is None or not all(map(_is_idle, members)):
        return 0.0
    if not any(member.node is not None and member.node.leads() for member in members):
        return 0.0  # a lease that nobody holds would last for the whole leap
    if not world.calls_have_landed() or eye.rows(_UNDER_WAY)[0][0]:
        return 0.0
    store = client.store.tasks
    now = store.clock()
    ((by_store,),) = eye.rows(_BY_STORE, now)
    ((by_calendar,),) = eye.rows(_BY_CALENDAR)
    dues = [(by_store, now), (by_calendar, store.calendar())]
    early = lead(engine)
    most = min([most, *(due - since - early for due, since in dues if due is not None)])
    most = min(most, world.loop.seconds_to_own_timer(ticker))
    if most < early:
        return 0.0
    eye.write([(sql, (most,)) for sql in _HOLD])
    for member in members:
        member.clock.hold(most)
    world.loop.leap(most)
    return most


def _is_idle(member: FleetMember) -> bool:
    return member.up and not member.process.is_stopped and member.client is not None
