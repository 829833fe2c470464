"""The recipe of a conversation does what its page says."""

import asyncio
from pathlib import Path

import makegood as mg
from tests.docs.test_recipes_page import played, recipe


def test_each_message_is_answered_once_in_order_and_typed_as_it_comes(tmp_path: Path) -> None:
    module = recipe(tmp_path, "a-conversation")

    async def play(client: mg.Client) -> None:
        texts = [("c-1", "m-1", "why"), ("c-1", "m-2", "how"), ("c-2", "m-3", "who"), ("c-1", "m-2", "how")]
        tasks = [await module.say(client, *text) for text in texts]
        assert tasks[1].id == tasks[3].id
        lines = [[line async for line in module.typing(task)] for task in tasks[:3]]
        assert [each[-1] for each in lines] == ["why is question 1", "how is question 2", "who is question 1"]
        assert all(each[0] == each[-1].split()[0] for each in lines), "the first word came at once"
        assert all(each[-1].startswith(line) for each in lines for line in each)

    played(module.chat, tmp_path, play)
    assert module.ANSWERS == {
        "c-1": {"m-1": "why is question 1", "m-2": "how is question 2"}, "c-2": {"m-3": "who is question 1"},
    }  # fmt: skip


def test_what_may_be_repeated_does_not_wait_for_the_deadline_of_a_dead_process(tmp_path: Path) -> None:
    """And the refund, which nobody recognises as a repeated one, does."""
    module = recipe(tmp_path, "a-conversation")
    resumes = {action.name: action._policy.resumes for action in (module.think, module.keep, module.refund)}
    assert resumes == {"think": True, "keep": True, "refund": False}


def test_a_yes_returns_what_comes_of_it_and_the_next_message_waits_for_it(tmp_path: Path) -> None:
    module = recipe(tmp_path, "a-conversation")

    async def play(client: mg.Client) -> None:
        offer = await client.submit(module.offer_refund, "c-1", "m-1", "order 7", key="m-1")
        later = await module.say(client, "c-1", "m-2", "thanks")
        other = await module.say(client, "c-2", "m-3", "who")
        assert await other.result(timeout="2m") == "who is question 1"
        assert (await later.status()).task.state == "queued"
        answers = await asyncio.gather(*(module.confirm(client, "m-1", "click-1") for _ in range(2)))
        assert answers == ["order 7 is refunded"] * 2
        assert await later.result(timeout="2m") == "thanks is question 2"
        assert await offer.result(timeout="2m") == "order 7 is refunded"

    played(module.chat, tmp_path, play)
