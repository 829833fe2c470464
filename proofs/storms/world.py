"""The world of a storm: customers, an operator and the engine's surroundings in one simulated world.

Its life has phases: *draw* the options, *start* the processes, *submit*, *faults* for a while, *heal* (all
faults off, clocks agree, dead processes restarted, stopped ones resumed), *converge* within bounded virtual
time, *rest*.

    outcome = StormWorld(7, app=storm_app(), services=SERVICES_OF_STORM, orders=orders).run()
"""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence

from makegood.declare.call import current_call
from makegood.testing.simulator.customers import Order
from makegood.testing.simulator.faults import Plan
from makegood.testing.simulator.quiescence import Eye, WorldAtRest
from makegood.testing.simulator.world import SimulatedWorld
from makegood.testing.simulator.world_files import Grounds
from makegood.workflow.app import App
from proofs.storms.customers import RandomCustomers
from proofs.storms.eye import StormEye
from proofs.storms.lanes import laned
from proofs.storms.members import Consumer, StormMember, slots_lost, tells
from proofs.storms.operator import RandomOperator
from proofs.storms.order_broker import RelayMember, StormBroker
from proofs.storms.recorder import StormRecorder
from proofs.storms.rules import RULES
from proofs.storms.services import Kind, StormService
from proofs.storms.shop import asking
from proofs.storms.surroundings import SWEEP
from proofs.storms.swarm import StormSwarm, drawn
from proofs.storms.timetable import ACT, RATE, ScheduleOperator

_LOOK = 0.5

Orders = Callable[[App, random.Random, int], Sequence[Order]]


class StormWorld(SimulatedWorld):
    """One world of a storm.

    - ``swarm``: its options; by default drawn from the seed.
    - ``services``: name and kind of the remote services, which actions find with
      ``storms.services.service(name)``.
    - ``orders``: draws the submissions.
    """

    member = StormMember
    rules = RULES
    swarm: StormSwarm
    services: dict[str, StormService]
    customers: RandomCustomers

    def __init__(
        self,
        seed: int,
        *,
        app: App,
        orders: Orders,
        services: Mapping[str, Kind],
        once: frozenset[str] = frozenset(),
        swarm: StormSwarm | None = None,
        plan: Plan | None = None,
        grounds: Grounds | None = None,
    ) -> None:
        super().__init__(seed, app=app, once=once, swarm=swarm or drawn(seed), plan=plan, grounds=grounds)
        self.recorder = StormRecorder(self.history, self.store_id)
        self.services = {name: StormService(self, name, kind=kind) for name, kind in services.items()}
        drawn_orders = orders(app, random.Random(f"{seed} orders"), self.swarm.tasks)
        if self.swarm.laned:
            drawn_orders = laned(app, drawn_orders, self.swarm.laned, random.Random(f"{seed} laned"))
        if self.swarm.asking:
            drawn_orders = asking(app, drawn_orders, self.swarm.asking, random.Random(f"{seed} asking"))
        if self.swarm.noting:
            drawn_orders = [order._replace(notes=True) for order in drawn_orders]
        self.customers = RandomCustomers(self, drawn_orders)
        self.broker = StormBroker(seed)
        self.operator = RandomOperator(self, random.Random(f"{seed} operator"))
        self._noting = random.Random(f"{seed} noting")
        self._notes = 0
        self.clockwork: ScheduleOperator | None = None
        if self.swarm.timetable is not None:
            folder = self._ground.folder / "zones"
            self.clockwork = ScheduleOperator(self, self.swarm.timetable, self.swarm.storm, folder)

    def _strengths(self) -> dict[str, float]:
        around = self.swarm.around
        return super()._strengths() | ({} if around is None else around.faults)

    def _eye(self) -> StormEye:
        return StormEye(self.path, self.swarm.around)

    def _at_rest(self, eye: Eye) -> WorldAtRest:
        assert isinstance(eye, StormEye)
        return WorldAtRest(eye.tasks(), eye.findings(self), eye.final())

    def _misdone(self) -> list[str]:
        return self.operator.findings + ([] if self.clockwork is None else self.clockwork.findings)

    def _prepare(self) -> None:
        super()._prepare()
        if (surroundings := self.swarm.around) is not None:
            for n in range(surroundings.consumers):
                self._add_member(f"web{n + 1}", (), Consumer)
            for n in range(surroundings.inboxes if surroundings.sent else 0):
                self._add(f"in{n + 1}", ("inbox",))
            for n in range(surroundings.relays):
                self._add_member(f"relay{n + 1}", (), RelayMember)

    def trouble(self, able: tuple[str, ...]) -> str | None:
        """Return what goes wrong with a call of a service."""
        return self.strike("service", able)

    def report(self) -> None:
        """Let the running action write a note, in worlds of notes, each time with another number."""
        if self.swarm.noting and self._noting.random() < self.swarm.noting:
            self._notes += 1
            current_call().note(self._notes)

    def _happen(self, kind: str, rng: random.Random) -> None:
        if kind == "operator":
            self.operator.act()
        elif kind == ACT and self.clockwork is not None:
            self.clockwork.act()
        else:
            super()._happen(kind, rng)

    def jump_calendar(self, seconds: float) -> None:
        """Let the wall clock of the store's machine jump; time that has passed stays as it is."""
        self._fault("calendar jump", "", "")
        self.true_clock.jump(seconds)

    async def _live(self, eye: Eye) -> None:
        assert isinstance(eye, StormEye)
        self.storming = self.swarm.storm > 0
        self.faults.on = self.storming
        for member in self.members.values():
            member.start()
        customers = self.loop.create_task(self.customers.run(self.swarm.storm * 0.7))
        rates = dict(self.swarm.rates)
        if self.clockwork is not None:
            self.clockwork.begin()
            rates[ACT] = RATE
        drivers = [self.loop.create_task(self._drive(kind, rate)) for kind, rate in rates.items()]
        await asyncio.sleep(self.swarm.storm)
        for driver in drivers:
            driver.cancel()
        await asyncio.gather(*drivers, return_exceptions=True)
        self.heal()
        self.broker.away = False
        self.broker.break_connections()  # an acknowledgement that was lost is noticed by no one before
        await self._come_to_rest(eye, customers)
        customers.cancel()
        leaks = [slots for member in self.members.values() for slots in slots_lost(member)]
        self.history.note("rest", **eye.rest(), slots_lost=leaks)
        if self.swarm.around is not None and self.swarm.around.keep is not None:
            self._rest_view = self._at_rest(eye)
            if leader := eye.leader():  # The janitor runs beside it.
                self._leave_to({leader})
            await asyncio.sleep(self.swarm.around.keep + 3 * SWEEP)
            self.history.note("swept", overdue=eye.overdue())

    async def _come_to_rest(self, eye: StormEye, customers: asyncio.Task[None]) -> None:
        """Wait until no work is left, within the limit of a world; the operator goes through the tasks in
        error.
        """
        tidyings = 0
        end = self.loop.now + self.swarm.calm_down
        while self.loop.now < end:
            await asyncio.sleep(_LOOK)
            if not (customers.done() and self._operators_are_idle()):
                continue
            if eye.busy() or self.broker.backlog():
                if self.swarm.laned and eye.waits_for_release() and self.calls_have_landed():
                    self.operator.release_all()
                continue
            is_quiet, submitters_know = self.calls_have_landed(), eye.all_are_told()
            if tidyings < self.swarm.tidying and eye.in_error():
                if is_quiet:  # The effects at the services cannot change any more.
                    tidyings += 1
                    self.operator.tidy()
            elif is_quiet and submitters_know:
                return
            elif self.swarm.around is None:
                self._leave_to(set())
            elif leader := eye.leader():
                tell = (
                    ()
                    if submitters_know
                    else (name for name, member in self.members.items() if tells(member))
                )
                self._leave_to({leader, *tell})

    def _operators_are_idle(self) -> bool:
        return self.operator.idle and (self.clockwork is None or self.clockwork.idle)

    def _leave_to(self, names: set[str]) -> None:
        """Stop all processes except these: waiting with all the others for work that only these do costs more
        than the storm, and shows nothing.
        """
        for member in self.members.values():
            if member.name not in names:
                member.process.is_stopped = True
