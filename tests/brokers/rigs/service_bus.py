"""Service Bus by a stub of our own, a process of the system's Python.

It proves makegood's calls, not the service: what only that can show is marked in
``tests/brokers/test_service_bus.py``, and runs with ``MAKEGOOD_TEST_SERVICEBUS``.
"""

import base64
import json
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from examples.orders.free_port import free_port
from makegood.brokers import BrokerAddress, Target, address_of
from makegood.errors import ConfigError
from tests.brokers.rig import Draft, Received
from tests.brokers.rigs.private_server import PrivateProgram, RigBehindAWay

PYTHON = "/usr/bin/python3"
STUB = Path(__file__).resolve().parents[1] / "service_bus_stub.py"


class ServiceBusRig(RigBehindAWay):
    """The stub."""

    kind = "servicebus"
    gives_ids = True
    takes_ids = True
    keeps_over_restart = False
    keeps_order = False
    durable_after = 0.0
    has_single_acknowledgements = True
    takes_empty = True
    has_connection = True
    takes_bytes = True
    checks_rights = True
    has_proxy = True
    redelivery = 15.0
    secrets = ("c2VjcmV0c2VjcmV0",)
    has_dead_letters = True
    most_bytes = 256 * 1024

    def __init__(self) -> None:
        self._control = free_port()
        super().__init__(
            PrivateProgram("servicebus", lambda _, port: [PYTHON, str(STUB), str(port), str(self._control)])
        )
        self._queues: dict[str, dict[str, Any]] = {}

    @property
    def target(self) -> Target:
        text = (
            f"Endpoint=sb://127.0.0.1:{self.way.port};SharedAccessKeyName=makegood;"
            "SharedAccessKey=c2VjcmV0c2VjcmV0;UseDevelopmentEmulator=true"
        )
        return Target("servicebus", "main", text)

    def start(self) -> None:
        """Raises ``ConfigError`` if the machine lacks proton."""
        try:
            known = subprocess.run(
                [PYTHON, "-c", "import proton"], check=False, capture_output=True
            ).returncode
        except OSError:
            known = 1
        if known:
            raise ConfigError(
                "no proton for the system's Python, which the stub of Service Bus needs: apt-get install python3-qpid-proton"
            )
        self.server.start()
        for name, settings in self._queues.items():
            self.do("queue", name, **settings)

    def do(self, verb: str, name: str = "", **more: Any) -> Any:
        """Have the stub do something."""
        with socket.create_connection(("127.0.0.1", self._control), timeout=30) as way:
            way.sendall(json.dumps({"do": verb, "name": name, **more}).encode() + b"\n")
            answer = json.loads(way.makefile().readline())
        assert not isinstance(answer, dict), answer["error"]
        return answer

    def make(self, place: str, **settings: Any) -> BrokerAddress:
        """Make a queue; see ``Entity`` of the stub."""
        self._queues[place] = settings
        self.do("queue", place, **settings)
        return address_of(f"servicebus:main/{place}", {"servicebus"})

    async def declare(self, place: str) -> BrokerAddress:
        return self.make(place, lock=10)

    async def delete(self, place: str) -> None:
        del self._queues[place]
        self.do("delete", place)

    async def publish(self, place: str, drafts: Sequence[Draft]) -> None:
        messages = [
            {"body": base64.b64encode(draft.body).decode(), "id": draft.id, "headers": dict(draft.headers)}
            for draft in drafts
        ]
        self.do("send", place, messages=messages)

    async def waiting(self, address: BrokerAddress, group: str) -> int:
        del group
        return int(self.do("waiting", address.place))

    async def read(self, place: str) -> list[Received]:
        return [
            Received(base64.b64decode(each["body"]), each["id"], each["session"], each["type"])
            for each in self.do("read", place)
        ]

    async def dead_letters(self, place: str) -> list[bytes]:
        return [letter.body for letter in await self.read(f"{place}/$DeadLetterQueue")]

    async def revoke(self) -> None:
        self.do("set", denied=True)
        self.way.sever()

    async def grant(self) -> None:
        self.do("set", denied=False)
