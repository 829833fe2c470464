"""Files that the settings of a broker name, and that vanish while a process runs: notices wait, and are not given up."""

from pathlib import Path

import pytest
import trustme

from makegood.brokers import OutgoingEvent, Reader, RefusedTargetError, Target, check, open_sender
from makegood.errors import BrokerUnavailableError, ConfigError, DeliveryError

URLS = {
    "amqp": "amqps://127.0.0.1:9?cafile={file}",
    "kafka": "kafka+tls://127.0.0.1:9?sslrootcert={file}",
    "nats": "tls://127.0.0.1:9?sslrootcert={file}",
    "redis": "rediss://127.0.0.1:9?ssl_ca_certs={file}",
}


@pytest.fixture(params=URLS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    """A broker whose certificates are in the file ``ca.pem``."""
    file = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(str(file))
    return Target(request.param, "main", URLS[request.param].format(file=file))


async def test_a_sender_lets_the_notice_wait(target: Target, tmp_path: Path) -> None:
    sender = open_sender(target)
    (tmp_path / "ca.pem").unlink()
    try:
        with pytest.raises(DeliveryError) as caught:
            await sender.send("notices", OutgoingEvent("1", "1", b"{}"), 3.0)
    finally:
        await sender.close()
    assert not isinstance(caught.value, RefusedTargetError)
    has_kept_it = target.kind == "amqp"  # RabbitMQ's sender reads it once
    assert isinstance(caught.value.__cause__, BrokerUnavailableError if has_kept_it else ConfigError)


async def test_a_check_says_so_too(target: Target, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").unlink()
    with pytest.raises(ConfigError, match="the URL of 'main'"):
        await check(target, [], ["notices"], Reader("group", "name"))
