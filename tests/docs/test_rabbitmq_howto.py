"""The page on orders from RabbitMQ does what it says: its files are run against a real node."""

import asyncio
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import cast

import makegood as mg
from makegood.store.views import Filter
from tests.brokers.rigs import open_rig
from tests.brokers.rigs.rabbitmq import RabbitRig
from tests.waiting import until

PAGE = (Path(__file__).resolve().parents[2] / "docs/build/orders-from-rabbitmq.md").read_text("utf-8")
FILES = re.findall(r"^```(?:python|toml)\n# (\S+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
BLOCKS = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
ADMINISTRATOR = "amqp://guest:guest@127.0.0.1:5672/"


async def test_an_order_that_is_published_becomes_a_task_and_notices(tmp_path: Path) -> None:
    """The commands of the page in its order, with the process that runs for ever behind the others.

    Each block is typed into a terminal of its own, which has only the variables that the block exports.
    """
    rig = cast("RabbitRig", open_rig("rabbitmq-classic"))
    server = rig.server
    for name, text in FILES:
        (tmp_path / name).write_text(text, encoding="utf-8")
    bare = {name: value for name, value in os.environ.items() if name != "PUBLISHER"}
    env = bare = {**bare, "MAKEGOOD_BROKERS_MAIN": rig.target.url}
    administrator = rig.url(server.user, server.password).partition("?")[0]
    running: list[asyncio.subprocess.Process] = []
    try:
        for line in [line for block in BLOCKS for line in ("", *block.splitlines())]:
            if not line:
                env = bare
                continue
            program, *words = shlex.split(line)
            if program == "pip":
                continue
            if program == "export":
                name, _, value = words[0].partition("=")
                env = {**env, name: value.replace(ADMINISTRATOR, administrator)}
                continue
            command = [sys.executable, *(["-m", "makegood"] if program == "makegood" else []), *words]
            if words[0] == "run":
                running.append(await asyncio.create_subprocess_exec(*command, cwd=tmp_path, env=env))
            else:
                await asyncio.to_thread(
                    subprocess.run, command, cwd=tmp_path, env=env, check=True, timeout=120
                )
        async with mg.Client(f"sqlite:///{tmp_path}/makegood.db") as client:

            async def is_processed() -> bool:
                return await client.count(Filter(states=("processed",))) == 1

            await until(is_processed, "the order to be processed")

            async def is_sent() -> bool:
                return [each.sent for each in (await client.brokers()).receivers] == [3]

            await until(is_sent, "its notices to be sent")
    finally:
        for process in running:
            process.terminate()
            await asyncio.wait_for(process.wait(), 120)
        rig.close()
