"""The page on encoded payloads: its code is loaded and run, the bucket by a client with the two calls of boto3."""

import asyncio
import io
import re
from pathlib import Path
from typing import Any

import pytest

import makegood as mg
from tests.docs.test_operate_howto import loaded

PAGE = (Path(__file__).resolve().parents[2] / "docs/build/encrypt-payloads.md").read_text("utf-8")


class S3:
    """A bucket, as boto3 calls it."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], bytes] = {}

    def put_object(self, *, Bucket: str, Key: str, Body: bytes) -> None:  # noqa: N803 - boto3's names
        """Keep an object."""
        self.objects[Bucket, Key] = Body

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:  # noqa: N803 - as above
        """Return an object."""
        return {"Body": io.BytesIO(self.objects[Bucket, Key])}


def page(folder: Path) -> Any:
    code = "\n\n".join(re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
    (folder / "encrypted_page.py").write_text(code, encoding="utf-8")
    return loaded(folder, "encrypted_page")


def test_the_program_of_the_page_pays_and_its_file_holds_no_card(tmp_path: Path) -> None:
    result = asyncio.run(page(tmp_path).main(f"sqlite:///{tmp_path / 'shop.db'}"))
    assert result == "payment of 250 by 4242 4242"
    for file in tmp_path.glob("shop.db*"):
        assert b"4242" not in file.read_bytes()


def test_large_values_go_to_the_bucket_encrypted(tmp_path: Path) -> None:
    bucket = S3()
    app: mg.App = page(tmp_path).archive(bucket)
    agent = app.agent("scans")

    @agent.action(complete_within="10s", undo=mg.NOTHING)
    def keep(scan: str) -> int:
        return len(scan)

    @app.workflow
    def store_scan(scan: str) -> int:
        return keep(scan)

    async def run() -> int:
        async with mg.Node(app, f"sqlite:///{tmp_path / 'scans.db'}") as node:
            task = await node.client.submit(store_scan, "canary" * 500_000)
            return await task.result(timeout="30s")

    assert asyncio.run(run()) == 3_000_000
    ((_, data),) = bucket.objects.items()
    assert b"canarycanary" not in data
    assert sum(file.stat().st_size for file in tmp_path.glob("scans.db*")) < 2_000_000


def test_a_codec_of_ones_own_refuses_what_was_moved(tmp_path: Path) -> None:
    codec, place = page(tmp_path).Marked(), mg.codecs.Context("7", "input 0")
    data = codec.encode(b"1", place)
    assert codec.decode(data, place) == b"1"
    with pytest.raises(mg.CodecError, match="from elsewhere"):
        codec.decode(data, place._replace(task="8"))
