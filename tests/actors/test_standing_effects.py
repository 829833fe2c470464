"""What stands is listed, whoever asks: also an effect of an earlier round that a later one did not reach."""

from pathlib import Path

import pytest

import makegood as mg


class Shop:
    """A reservation, a mail that cannot be taken back, and a payment; each fails as long as it is told to."""

    def __init__(self) -> None:
        self.failing = {"pay"}
        self.app = mg.App("shop")
        agent = self.app.agent("all")

        def must_not(name: str) -> None:
            if name in self.failing:
                raise mg.Permanent(f"{name} is refused")

        @agent.action(complete_within="1m", undo=mg.NOTHING)
        def reserve() -> None:
            must_not("reserve")

        @agent.action(complete_within="1m", undo=mg.NOTHING)
        def mail() -> None:
            must_not("mail")

        @agent.action(complete_within="1m", undo=mg.NOTHING)
        def pay() -> None:
            must_not("pay")

        @self.app.workflow(complete_within="1m")
        def order() -> None:
            reserve()
            mail()
            pay()

        self.order = order


async def test_a_mail_of_the_first_round_is_listed_when_the_second_does_not_come_to_it(
    tmp_path: Path,
) -> None:
    shop, url = Shop(), f"sqlite:///{tmp_path / 'shop.db'}"
    async with mg.Node(shop.app, url) as node:
        task = await node.client.submit(shop.order)
        with pytest.raises(mg.TaskUndone) as first:
            await task.result(timeout=60)
        assert first.value.standing == ("reserve", "mail")
        shop.failing = {"reserve"}
        await task.resubmit()
        again = node.client.task(task.id)
        with pytest.raises(mg.TaskUndone) as second:
            await again.result(timeout=60)
        states = {step.name: step.state for step in (await again.status()).steps}
        assert states == {"reserve": "failed", "mail": "waiting", "pay": "waiting"}
        assert second.value.standing == ("reserve", "mail")
        assert "harmless effects in place: reserve, mail" in str(second.value)
        shop.failing = set()
        await task.resubmit()
        await node.client.task(task.id).result(timeout=60)
