"""The pages on sizing and sharding: its shards are shards, and the numbers that they take from the code are the code's."""

import asyncio
import importlib.util
import inspect
import re
from pathlib import Path

import pytest

import makegood as mg
from makegood.errors import KeyConflict, TaskNotFoundError
from makegood.options import Options
from makegood.store.postgres import database as postgres
from makegood.supervisor import janitor

DOCS = Path(__file__).resolve().parents[2] / "docs/operate"
PAGE = (DOCS / "sizing.md").read_text(encoding="utf-8")
SHARDING = (DOCS / "sharding.md").read_text(encoding="utf-8")


async def test_the_shards_of_the_page(tmp_path: Path) -> None:
    """Tasks go to both stores, each under its key to the same one again; both are served by one program, and listed in order."""
    (code,) = re.findall(r"^```python\n(.*?)^```", SHARDING, re.MULTILINE | re.DOTALL)
    path = tmp_path / "shards.py"
    path.write_text(code, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("shards", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    urls = [f"sqlite:///{tmp_path / f'{n}.db'}" for n in range(2)]
    for url in urls:
        async with mg.Client(url, migrate=True):
            pass
    serving = asyncio.create_task(module.served(urls))
    async with module.opened(urls) as shards:
        tasks = [await shards.submit(f"o-{n}") for n in range(8)]
        assert {await task.result(timeout="60s") for task in tasks} == {f"packed o-{n}" for n in range(8)}
        assert all([not (await shards.submit(f"o-{n}")).created for n in range(8)])
        newest = await shards.newest(8)
        assert [view.key for view in newest] == [f"o-{n}" for n in reversed(range(8))]
        counts = [len(await client.find()) for client in shards.clients]
        assert sum(counts) == 8
        assert all(counts)
        here = shards.of("o-0")
        elsewhere = next(client for client in shards.clients if client is not here)
        with pytest.raises(TaskNotFoundError):  # an id does not say its shard
            await elsewhere.task(tasks[0].id).status()
        assert (
            await elsewhere.submit(module.place_order, "o-0", key="o-0")
        ).created  # a key is unique in its store only
        with pytest.raises(KeyConflict):
            await here.submit(module.place_order, "other", key="o-0")
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


def test_the_numbers_are_the_codes() -> None:
    """Connections of a process, what it holds and claims, what is kept, how fast the janitor can be."""
    assert f"{postgres._WRITERS} that write, one that reads, one for heartbeats" in PAGE
    options = inspect.signature(Options).parameters
    assert f"`max_tasks` ({options['max_tasks'].default:,} tasks)" in PAGE
    assert f"`claim_batch` ({options['claim_batch'].default})" in PAGE
    assert f"`dead_after` ({options['dead_after'].default:g} s)" in PAGE
    assert f"`lease` ({options['lease'].default:g} s)" in PAGE
    assert f"{janitor.WINDOW} tasks at a time with {janitor.REST * 1000:g} ms between" in PAGE
