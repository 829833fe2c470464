"""Schemathesis asks every endpoint what it may and may not be asked, over real connections, and compares answers with ``openapi.json``."""

import asyncio
import sys
from pathlib import Path

import makegood as mg
from makegood.console import openapi
from makegood.console.options import ConsoleOptions
from makegood.console.server import ConsoleServer
from tests.console.consoles import migrated
from tests.console.test_api import shop, sold

TOKEN = "token-of-the-api-examined"
DESCRIPTION = Path(openapi.__file__).parent / "openapi.json"
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,negative_data_rejection,"
    "unsupported_method"
)


async def test_answers_are_as_they_are_described(tmp_path: Path) -> None:
    url = await migrated(tmp_path)
    await sold(url)
    server = ConsoleServer(url, ConsoleOptions(listen="127.0.0.1:0", token=TOKEN))
    async with mg.Node(shop, url, roles=["scheduler", "supervisor"]):
        await server.begin()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "schemathesis.cli", "run", str(DESCRIPTION), "--url", server.address, "--checks", CHECKS, "--phases",
                "examples,coverage,fuzzing", "--max-examples", "5", "--seed", "1", "--continue-on-failure", "--no-color",
                "-H", f"Authorization: Bearer {TOKEN}",
                cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            )  # fmt: skip
            output = (await process.communicate())[0].decode()
        finally:
            await server.end()
    assert process.returncode == 0, output[-8000:]
