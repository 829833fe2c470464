"""``open_leases(url)``: the lease store that a URL names. Only then are its module, and the client it needs,
imported.
"""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl

from makegood.base.arguments import judge_calls
from makegood.base.clock import Clock, SystemClock
from makegood.base.durations import Duration, seconds
from makegood.base.extras import optional
from makegood.base.private_files import secret_in
from makegood.base.urls import parts_of, path_hint, scheme_hint, scheme_of, scrub
from makegood.election.protocol import OpenLeases
from makegood.errors import ConfigError


class LeaseStoreKind(NamedTuple):
    """The store for a URL scheme."""

    module: str
    """Its module, which has ``from_url(url, *, clock, timeout)``."""
    form: str
    """What such a URL looks like."""
    package: str = ""
    """The client that it imports; "" for none."""
    extra: str = ""
    """The extra of makegood that brings the client."""
    takes: tuple[str, ...] | None = ()
    """The parameters that the URL may have; None: any that the client or the service takes."""


_TLS = ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname")
_OF_REDIS = ("db", "username", "password", *_TLS)
_REDIS = LeaseStoreKind("redis", "redis://user:password@host:6379/0", "redis", "redis", takes=_OF_REDIS)
_AZURE = LeaseStoreKind(
    "azure", "azure-blob://ACCOUNT.blob.core.windows.net/CONTAINER", "azure.storage.blob", "azure", takes=None
)
_ETCD = LeaseStoreKind("etcd", "etcd://host:2379/prefix", "httpx2", "etcd")
_KUBERNETES = LeaseStoreKind("kubernetes", "kubernetes:///namespace", "httpx2", "kubernetes")
_NATS = LeaseStoreKind("nats", "nats://host:4222/bucket", "nats", "nats", takes=("replicas", "creds"))
_POSTGRES = LeaseStoreKind("postgres", "postgresql://user@host/database", "asyncpg", "postgres", takes=None)
_ZOOKEEPER = LeaseStoreKind("zookeeper", "zookeeper://host:2181/folder", "kazoo", "zookeeper")

KINDS: Mapping[str, LeaseStoreKind] = {
    "memory": LeaseStoreKind("memory", "memory:"),
    "sqlite": LeaseStoreKind("sqlite", "sqlite:///file.db"),
    "postgresql": _POSTGRES,
    "postgres": _POSTGRES,
    "azure-blob": _AZURE,
    "etcd": _ETCD,
    "etcd+https": _ETCD,
    "kubernetes": _KUBERNETES,
    "nats": _NATS,
    "tls": _NATS,
    "redis": _REDIS,
    "rediss": _REDIS,
    "zookeeper": _ZOOKEEPER,
}
"""The stores by the scheme of their URL."""

_NO_HOST_OF_THEIR_OWN = ("etcd", "nats", "zookeeper")
"""Stores whose client knows no default host."""


@judge_calls(ConfigError)
def open_leases(url: str, *, timeout: Duration = 5, clock: Clock | None = None) -> OpenLeases:
    """Return the lease store that ``url`` names (``@FILE``: the URL in that file).

    It connects when it is first used; ``close()`` or ``async with`` closes it. ``timeout``: how long a call
    may take before its outcome counts as unknown, in seconds or as a duration. ``clock``: for tests. Raises
    ``ConfigError`` for a URL that names no store, or if the extra for it is not installed.
    """
    if not isinstance(url, str):
        raise ConfigError(
            f'the URL of the leases must be a text such as "sqlite:///leases.db", not {type(url).__name__}'
        )
    url = secret_in(url, "the URL of the leases")
    head = url.partition(":")[0]
    # These two may have nothing behind the colon.
    scheme = head if head in ("memory", "kubernetes") else scheme_of(url)
    if head == "kubernetes" and not url.startswith("kubernetes://"):
        url = f"kubernetes:///{url.partition(':')[2].strip('/')}"
    kind = KINDS.get(scheme)
    if kind is None:
        forms = ", ".join(sorted({kind.form for kind in KINDS.values()}))
        subject = f"the scheme {scheme!r}" if scheme else "this text"
        near = KINDS.get(head)
        raise ConfigError(
            f"{subject} names no lease store: write {near.form if near else f'one of {forms}'}{scheme_hint(scheme)}{path_hint(url)}"
        )
    _verify(url, kind)
    hint = (
        f"leases at {kind.form} need {kind.package}: install makegood with its extra {kind.extra!r}, `pip install "
        f"'makegood[{kind.extra}]'` (in a checkout `pip install '.[{kind.extra}]'`)"
    )
    module = optional(f"makegood.election.stores.{kind.module}", kind.package.partition(".")[0], hint)
    wait = seconds(timeout, name="timeout", least=0.01)
    leases: OpenLeases = module.from_url(url, clock=clock or SystemClock(), timeout=wait)
    return leases


def _verify(url: str, kind: LeaseStoreKind) -> None:
    """Refuse a URL without a host, and a parameter that the store does not know: it would become part of a
    name, or be ignored.
    """
    if kind.module in ("memory", "sqlite"):
        query = url.partition("?")[2] if "=" in url.partition("?")[2] else ""
    else:
        parts = parts_of(url, "the URL of the leases")
        query, places = parts.query, parts.netloc.rpartition("@")[2].split(",")
        if kind.module in _NO_HOST_OF_THEIR_OWN and not all(place.partition(":")[0] for place in places):
            raise ConfigError(f"the URL of the leases: a host is missing: write {kind.form}")
    if kind.takes is None or not query:
        return
    unknown = [name for name, _ in parse_qsl(query, keep_blank_values=True) if name not in kind.takes]
    if unknown:
        parameters = f"it takes {', '.join(kind.takes)}" if kind.takes else "it takes no parameter"
        complaint = scrub(f"this store has no parameter {unknown[0]!r}", url)
        raise ConfigError(f"{complaint}: write {kind.form}; {parameters}")
