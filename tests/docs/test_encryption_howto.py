"""The page on encoded payloads: its code is loaded and run, the bucket by a client with the two calls of boto3; and by boto3 itself,
on a server that speaks S3 over HTTP.
"""

import asyncio
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import makegood as mg
from tests.docs.test_operate_howto import loaded

PAGE = (Path(__file__).resolve().parents[2] / "docs/build/encrypt-payloads.md").read_text("utf-8")


SCAN = "canary" * 500_000


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


def result_of(folder: Path, s3: Any) -> int:
    """Run the archive of the page with a large scan, in a Node and by a second client; return its result."""
    app: mg.App = page(folder).archive(s3)
    agent = app.agent("scans")

    @agent.action(complete_within="10s", undo=mg.NOTHING)
    def keep(scan: str) -> int:
        return len(scan)

    @app.workflow
    def store_scan(scan: str) -> int:
        return keep(scan)

    async def run() -> int:
        async with mg.Node(app, f"sqlite:///{folder / 'scans.db'}") as node:
            task = await node.client.submit(store_scan, SCAN)
            (data,) = (await node.client.task(task.id).status()).inputs
            assert data == f'"{SCAN}"'.encode()
            return await task.result(timeout="60s")

    return asyncio.run(run())


def test_large_values_go_to_the_bucket_encrypted(tmp_path: Path) -> None:
    bucket = S3()
    assert result_of(tmp_path, bucket) == len(SCAN)
    ((_, data),) = bucket.objects.items()
    assert b"canarycanary" not in data
    assert sum(file.stat().st_size for file in tmp_path.glob("scans.db*")) < 2_000_000


@pytest.fixture
def s3() -> Iterator[Any]:
    """A client of boto3 at a server of its own, with the bucket of the page."""
    reason = "boto3 and moto are not installed: pip install 'makegood[test]'"
    boto3 = pytest.importorskip("boto3", reason=reason)
    moto = pytest.importorskip("moto.server", reason=reason)
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        client = boto3.client(
            "s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
        )  # fmt: skip
        try:
            client.create_bucket(Bucket="payloads")
            yield client
        finally:
            client.close()
    finally:
        server.stop()


def test_large_values_go_through_boto3_over_http(tmp_path: Path, s3: Any) -> None:
    """The same value of two tasks is two objects, as each is encrypted for its task; a lost object is an error that names it."""
    assert result_of(tmp_path, s3) == len(SCAN)
    assert result_of(tmp_path, s3) == len(SCAN)
    names = [entry["Key"] for entry in s3.list_objects_v2(Bucket="payloads")["Contents"]]
    assert len(names) == 2
    for name in names:
        assert b"canarycanary" not in s3.get_object(Bucket="payloads", Key=name)["Body"].read()
    codec, place = page(tmp_path).kept_in(s3, "payloads"), mg.codecs.Context("7", "input 0")
    envelope = asyncio.run(codec.encode(SCAN.encode(), place))
    assert asyncio.run(codec.decode(envelope, place)) == SCAN.encode()
    s3.put_object(Bucket="payloads", Key=envelope.decode().removeprefix("at::"), Body=b"another")
    with pytest.raises(mg.CodecError, match="is not what was put there"):
        asyncio.run(codec.decode(envelope, place))


def test_a_codec_of_ones_own_refuses_what_was_moved(tmp_path: Path) -> None:
    codec, place = page(tmp_path).Marked(), mg.codecs.Context("7", "input 0")
    data = codec.encode(b"1", place)
    assert codec.decode(data, place) == b"1"
    with pytest.raises(mg.CodecError, match="from elsewhere"):
        codec.decode(data, place._replace(task="8"))
