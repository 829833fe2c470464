"""The page on orders from RabbitMQ does what it says: its files are run against a real node."""

import asyncio
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import makegood as mg
from makegood.store.views import Filter
from tests.brokers.rig import Rig
from tests.brokers.rigs import open_rig
from tests.waiting import until

PAGE = (Path(__file__).resolve().parents[2] / "docs/build/orders-from-rabbitmq.md").read_text("utf-8")
FILES = re.findall(r"^```python\n# (\S+\.py)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]


async def test_an_order_that_is_published_becomes_a_task(tmp_path: Path) -> None:
    """The commands of the page in its order, with the process that runs for ever behind the others."""
    rig: Rig = open_rig("rabbitmq-classic")
    await rig.declare("orders")
    for name, text in FILES:
        (tmp_path / name).write_text(text, encoding="utf-8")
    env = {
        **os.environ,
        "MAKEGOOD_BROKERS_MAIN": rig.target.url,
        "PUBLISHER": rig.target.url.partition("?")[0],
    }
    running: list[asyncio.subprocess.Process] = []
    try:
        for line in COMMANDS:
            program, *words = shlex.split(line)
            if program == "pip":
                continue
            command = [sys.executable, *(["-m", "makegood"] if program == "makegood" else []), *words]
            if words[0] == "run":
                running.append(await asyncio.create_subprocess_exec(*command, cwd=tmp_path, env=env))
            else:
                await asyncio.to_thread(
                    subprocess.run, command, cwd=tmp_path, env=env, check=True, timeout=60
                )
        async with mg.Client(f"sqlite:///{tmp_path}/makegood.db") as client:

            async def is_processed() -> bool:
                return await client.count(Filter(states=("processed",))) == 1

            await until(is_processed, "the order to be processed")
    finally:
        for process in running:
            process.terminate()
            await asyncio.wait_for(process.wait(), 30)
        rig.close()
