"""TLS to NATS and Redis: an unknown authority, or the wrong name, is an error of the settings; the named authority is enough."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from makegood.brokers import Reader, Source, Target, address_of, open_source
from makegood.errors import BrokerUnavailableError, ConfigError
from tests.brokers.rigs import nats, redis
from tests.brokers.rigs.private_server import PrivateProgram

PLACE = "orders"


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A folder with the certificate of 127.0.0.1, which is its own authority, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("TLS was NOT tested: no openssl on this machine")
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=here",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    return tmp_path


@pytest.fixture(params=["nats", "redis"])
def server(request: pytest.FixtureRequest, certificate: Path) -> Iterator[tuple[str, PrivateProgram]]:
    """A server that speaks TLS and nothing else."""

    def nats_words(folder: Path, port: int) -> list[str]:
        (folder / "server.conf").write_text(
            f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{folder}/data" }}\n'
            f'tls {{ cert_file: "{certificate}/cert.pem", key_file: "{certificate}/key.pem" }}\n'
        )
        return [nats.debian(), "-c", str(folder / "server.conf")]

    def redis_words(folder: Path, port: int) -> list[str]:
        return [
            redis.redis_server(), "--port", "0", "--tls-port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", "",
            "--tls-cert-file", f"{certificate}/cert.pem", "--tls-key-file", f"{certificate}/key.pem", "--tls-auth-clients", "no",
            "--tls-ca-cert-file", f"{certificate}/cert.pem",
        ]  # fmt: skip

    try:
        running = PrivateProgram(request.param, {"nats": nats_words, "redis": redis_words}[request.param])
        running.start()
    except ConfigError as reason:
        pytest.skip(f"{request.param}: TLS was NOT tested: {reason}")
    yield request.param, running
    running.close()


def source(kind: str, url: str) -> Source:
    """Return a source at a URL."""
    target = Target(kind, "main", url)
    return open_source(address_of(f"{kind}:main/{PLACE}", {kind}), {"main": target}, Reader("group", "one"))


async def test_the_authority_decides(server: tuple[str, PrivateProgram], certificate: Path) -> None:
    kind, running = server
    scheme, parameter = {"nats": ("tls", "sslrootcert"), "redis": ("rediss", "ssl_ca_certs")}[kind]
    known = f"?{parameter}={certificate}/cert.pem"
    with pytest.raises(ConfigError, match=f"certificate.*{parameter}=FILE"):
        await source(kind, f"{scheme}://127.0.0.1:{running.port}").open()
    with pytest.raises(ConfigError, match=r"certificate|not valid for"):
        await source(kind, f"{scheme}://localhost:{running.port}{known}").open()
    with pytest.raises(ConfigError, match=f"there is no stream|There is no stream {PLACE}"):
        await source(kind, f"{scheme}://127.0.0.1:{running.port}{known}").open()


async def test_a_server_with_tls_is_not_spoken_to_in_the_clear(
    server: tuple[str, PrivateProgram],
) -> None:
    kind, running = server
    with pytest.raises((ConfigError, BrokerUnavailableError)):
        await source(kind, f"{kind}://127.0.0.1:{running.port}").open()
