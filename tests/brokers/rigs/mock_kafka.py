"""A process with librdkafka's mock cluster behind a port of one's choice: ``mock_kafka.py PORT CONTROL``.

On the UNIX socket CONTROL it takes a JSON array a line, a command and its arguments, and answers with "ok".
The cluster's own listener has a port that nobody can choose; so connections to PORT, which is the one that
the cluster announces, are forwarded to it.
"""

import asyncio
import ctypes
import json
import sys
from pathlib import Path
from typing import Any

import confluent_kafka

_SYNC_GROUP = b"\0\x0e"
_BEHIND = 0.3
_PRODUCE = b"\0\0"
_MOST_BYTES = 1_500_000
_TOO_LARGE = 10


class MockCluster:
    """One broker that keeps topics, groups and transactions in memory."""

    def __init__(self, port: int) -> None:
        packages = Path(confluent_kafka.__file__).parent.parent
        [library] = packages.glob("confluent_kafka.libs/librdkafka*.so*")
        self._library = ctypes.CDLL(str(library))
        for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
            getattr(self._library, name).restype = ctypes.c_void_p
        self._library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
        problem = ctypes.create_string_buffer(512)
        conf = ctypes.c_void_p(self._library.rd_kafka_conf_new())
        self._client = ctypes.c_void_p(self._library.rd_kafka_new(0, conf, problem, 512))
        self._cluster = ctypes.c_void_p(self._library.rd_kafka_mock_cluster_new(self._client, 1))
        self.call("broker_set_host_port", 1, "127.0.0.1", port)
        self.call("group_initial_rebalance_delay_ms", 50)
        servers: bytes = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster)
        self.port = int(servers.rpartition(b":")[2])

    def call(self, name: str, *arguments: str | int) -> None:
        """Call a function of librdkafka's mock API."""
        values = [word.encode() if isinstance(word, str) else ctypes.c_int64(word) for word in arguments]
        getattr(self._library, f"rd_kafka_mock_{name}")(self._cluster, *values)

    def fail(self, api: int, *codes: int) -> None:
        """Answer the next requests of a kind with these errors."""
        array = (ctypes.c_int * len(codes))(*codes)
        self._library.rd_kafka_mock_push_request_errors_array(self._cluster, api, len(codes), array)


class Forwarder:
    """Connections to the cluster, which can be broken."""

    def __init__(self, cluster: MockCluster) -> None:
        self._cluster = cluster
        self._writers: set[asyncio.StreamWriter] = set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward a connection."""
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._cluster.port)
        self._writers |= {writer, far_writer}
        await asyncio.gather(
            self._ask(reader, far_writer), _answer(far_reader, writer), return_exceptions=True
        )
        self._writers -= {writer, far_writer}

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward requests.

        The mock cluster refuses the SyncGroup of a member that comes behind its leader's, which no broker does:
        the leader's is held up for a moment. And it has no limit for messages, which every broker has.
        """
        try:
            while True:
                size = await reader.readexactly(4)
                request = await reader.readexactly(int.from_bytes(size))
                if request[:2] == _SYNC_GROUP and _assigns(request):
                    loop = asyncio.get_running_loop()
                    others = loop.create_future()  # on connections of their own
                    loop.call_later(_BEHIND, others.set_result, None)
                    await others
                elif request[:2] == _PRODUCE and len(request) > _MOST_BYTES:
                    self._cluster.fail(int.from_bytes(_PRODUCE), _TOO_LARGE)
                writer.write(size + request)
                await writer.drain()
        finally:
            writer.close()

    def sever(self) -> None:
        """Break them all."""
        for writer in self._writers:
            writer.transport.abort()


def _assigns(sync: bytes) -> bool:
    """Return whether a SyncGroup, in version 3, shares out partitions."""
    at = 8
    for skip in (0, 4, 0, 0):  # client, group and its generation, member, instance
        length = int.from_bytes(sync[at : at + 2], signed=True)
        at += 2 + max(0, length) + skip
    return int.from_bytes(sync[at : at + 4]) > 0


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


async def main(port: int, control: str) -> None:
    """Serve until killed."""
    cluster = MockCluster(port)
    forwarder = Forwarder(cluster)

    async def obey(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        command: str
        arguments: list[Any]
        command, *arguments = json.loads(await reader.readline())
        if command == "sever":
            forwarder.sever()
        elif command == "fail":
            cluster.fail(*arguments)
        else:
            cluster.call(command, *arguments)
        writer.write(b"ok\n")
        writer.close()

    await asyncio.start_unix_server(obey, control)
    await asyncio.start_server(forwarder.accept, "127.0.0.1", port)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
