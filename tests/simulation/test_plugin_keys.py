"""In the worlds of a user's tests a service hears a key in the form, and under the header, that its action declares."""

import makegood as mg
from makegood.testing import FakeService, World, crash_everywhere

app = mg.App("shop")
outside = app.agent("outside")


class Remote:
    """Where the services are; each world puts its own here."""

    bank: FakeService
    hotel: FakeService


@outside.action(complete_within="30s", key=mg.keys.KLARNA)
async def charge(order: str) -> str:
    return str(await Remote.bank.do(order, headers=mg.current_call().headers))


@charge.undo
async def refund(order: str, *, result: str | None) -> None:
    await Remote.bank.undo(result, headers=mg.current_call().headers)


@outside.action(complete_within="30s", key=mg.keys.EXPEDIA, remembers=True)
async def book(order: str) -> str:
    return str(await Remote.hotel.do(order, key=mg.current_call().key))


@book.undo
async def cancel(order: str, *, result: str | None) -> None:
    await Remote.hotel.undo(result, key=mg.current_call().undoes)


@app.workflow(complete_within="2h")
def travel(order: str) -> str:
    booking = book(order)
    charge(order)
    return booking


def test_a_workflow_whose_services_take_other_keys_survives_a_crash_everywhere() -> None:
    keys: set[str] = set()
    effects: list[int] = []

    @crash_everywhere(at_most=12)
    async def test_travel(world: World) -> None:
        Remote.bank = world.service("bank")
        Remote.hotel = world.service("hotel", token=False)
        task = await world.submit(travel, "o1")
        await world.run_to_rest()
        task.assert_processed_or_undone()
        for service in world._stage.services.values():
            keys.update(one.told or "" for one in service.heard)
            effects.append(len(service.effects))
            for effect in service.effects:
                assert effect.told is not None
                assert service.standing(effect.told) == service.standing(effect.truth)
                assert effect.told != effect.truth

    test_travel()
    assert {len(key) for key in keys} == {28, 36}
    assert sum(effects) > 12
