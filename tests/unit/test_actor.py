"""An actor that only runs has nothing to wait for at a drain, and no use of its process's number."""

from makegood.actor.actor import Actor


class Plain(Actor):
    """Says nothing but how it runs."""

    async def run(self) -> None:
        """Do nothing."""


async def test_what_an_actor_does_not_say_is_done_at_once() -> None:
    actor = Plain()
    actor.rename(7)
    await actor.drain(60.0)
