"""Leases as Kubernetes objects, on a stub of the API server: the suite, what people see, and what is refused."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

from makegood.election import open_leases
from makegood.election.stores import kubernetes
from makegood.errors import ConfigError, StoreUnavailableError
from makegood.testing.forwarder import Forwarder
from makegood.testing.leases import LEASE_STORE_CASES, LeaseCase
from tests.election.kubernetes_stub import ApiServer
from tests.election.server_worlds import ObservedWorld


class KubernetesWorld(ObservedWorld):
    """A stub in this very loop."""

    rounds = 10

    def __init__(self) -> None:
        self.api = ApiServer()
        super().__init__(self.api)

    @asynccontextmanager
    async def ready(self) -> AsyncIterator[None]:
        async with self.api, Forwarder(self.api.port) as self.way:
            yield

    async def restart(self) -> None:
        await self.api.__aexit__(None, None, None)
        await self.api.__aenter__()


@pytest.mark.parametrize("case", LEASE_STORE_CASES, ids=str)
async def test_the_suite(case: LeaseCase) -> None:
    """Kubernetes leases do what an election relies on."""
    world = KubernetesWorld()
    async with world.ready():
        assert not await case.prove(world)


async def test_kubectl_shows_who_leads_and_what_others_put_there_stays() -> None:
    async with ApiServer() as api, open_leases(api.url) as leases:
        grant = await leases.acquire("reports", "pod-1", "n", 15)
        assert grant is not None
        lease = api.objects["jobs", "reports"]
        assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == ("pod-1", 1)
        assert lease["spec"]["leaseDurationSeconds"] == 15
        lease["metadata"]["labels"] = {"team": "books"}
        assert await leases.read("reports") is not None
        assert await leases.renew(grant)
        await leases.release(grant)
        lease = api.objects["jobs", "reports"]
        assert lease["spec"]["holderIdentity"] == ""
        assert lease["metadata"]["labels"] == {"team": "books"}


@pytest.mark.parametrize("name", ["orders/supervisor", "Reports", "x" * 70, "-", "täglich"])
async def test_any_name_of_an_election_is_brought_into_the_form_that_kubernetes_takes(name: str) -> None:
    async with ApiServer() as api, open_leases(api.url) as leases:
        assert await leases.acquire(name, "a", "n", 15) is not None
        assert await leases.acquire(name, "b", "m", 15) is None
        assert await leases.acquire(name + "2", "b", "m", 15) is not None
        assert len(api.objects) == 2


async def test_in_a_pod_the_service_account_is_used_and_its_token_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "namespace").write_text("jobs")
    monkeypatch.setattr(kubernetes, "ACCOUNT", tmp_path)
    async with ApiServer(token="first", tls=context) as api:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(api.port))
        async with open_leases("kubernetes:") as leases:
            grant = await leases.acquire("x", "a", "n", 15)
            assert grant is not None
            api.token = "second"
            with pytest.raises(StoreUnavailableError, match="status 401"):
                await leases.renew(grant)
            (tmp_path / "token").write_text("second\n")
            assert await leases.renew(grant)


async def test_what_is_no_lease_of_ours_is_refused() -> None:
    async with ApiServer() as api:
        spec = {"leaseDurationSeconds": 1, "leaseTransitions": 0, "holderIdentity": "other"}
        times = dict.fromkeys(("acquireTime", "renewTime"), "2026-01-01T00:00:00.000000Z")
        api._kept("jobs", "theirs", {"kind": "Lease", "metadata": {"name": "theirs"}, "spec": spec | times})
        async with open_leases(api.url) as leases:
            with pytest.raises(ConfigError, match="the Lease theirs serves something else"):
                await leases.acquire("theirs", "a", "n", 15)
        async with open_leases(api.url.replace("/jobs", "/nowhere")) as leases:
            with pytest.raises(ConfigError, match='namespaces "nowhere" not found'):
                await leases.acquire("x", "a", "n", 15)


async def test_a_server_that_is_not_there_is_named() -> None:
    async with open_leases("kubernetes://127.0.0.1:1/jobs") as leases:
        with pytest.raises(
            StoreUnavailableError, match=r"the leases in Kubernetes at 127\.0\.0\.1:1, namespace jobs"
        ):
            await leases.read("x")


@pytest.mark.parametrize(
    "url", ["kubernetes://host", "kubernetes:///a/b", "kubernetes://user@host/a", "kubernetes:///a?b=c"]
)
def test_a_url_that_says_something_else_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"write kubernetes:///(NAMESPACE in a pod|namespace)"):
        open_leases(url)


def test_outside_a_cluster_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigError, match="kubectl proxy"):
        open_leases("kubernetes:///jobs")
