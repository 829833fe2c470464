"""The pages on migration: the program of each is run to its end."""

import asyncio
import re
from pathlib import Path

import pytest

import makegood as mg
from tests.docs.test_operate_howto import loaded

BUILD = Path(__file__).resolve().parents[2] / "docs/build"


@pytest.mark.parametrize(
    ("origin", "app", "workflow", "result"),
    [
        ("celery", "shop", "place_order", "parcel x"),
        ("temporal", "shop", "place_order", "payment x"),
        ("dbos", "app", "greet", "x signed"),
    ],
)
def test_the_program_of_the_page_runs(
    tmp_path: Path, origin: str, app: str, workflow: str, result: str
) -> None:
    (code,) = re.findall(
        r"^```python\n(.*?)^```",
        (BUILD / f"migrate-from-{origin}.md").read_text("utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    (tmp_path / f"from_{origin}.py").write_text(code, encoding="utf-8")
    page = loaded(tmp_path, f"from_{origin}")

    async def call() -> str:
        async with mg.Node(getattr(page, app), f"sqlite:///{tmp_path / 'new.db'}") as node:
            task = await node.client.submit(getattr(page, workflow), "x")
            answer: str = await task.result("60s")
            return answer

    assert asyncio.run(call()) == result
