"""Leases as Kubernetes ``Lease`` objects, changed by compare-and-set on their ``resourceVersion``.

``kubectl get lease`` shows the holder; nonce, epoch and past terms are in an annotation. The API server does
not judge time: each observer does (``compare_and_set``), and never by ``renewTime``, which is written only
for people. It needs only three verbs of plain HTTP, so there is no heavy client.

In a cluster it uses the pod's service account, whose token it reads for each request, because tokens are
rotated. The account needs ``get``, ``create`` and ``update`` on ``leases`` of ``coordination.k8s.io``.
"""

import hashlib
import re
import ssl
from datetime import UTC, datetime
from math import ceil
from os import environ
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from makegood.base.clock import Clock
from makegood.base.durations import Duration
from makegood.base.urls import mask_url
from makegood.election.stores.compare_and_set import ObservedLeases, Record, Version
from makegood.election.stores.http import Http, HttpLeases
from makegood.errors import ConfigError

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
ANNOTATION = "makegood/lease"

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_CONFLICT, _NOT_FOUND = 409, 404


class KubernetesLeases(HttpLeases, ObservedLeases):
    """A lease store in a ``namespace`` behind the API server ``server``.

    ``token``: a file with the bearer's token; ``authority``: a file with the server's certificate authority;
    ``clock`` judges expiry; ``timeout``: how long a call may take.
    """

    def __init__(
        self,
        server: str,
        namespace: str,
        *,
        clock: Clock,
        token: Path | None = None,
        authority: Path | None = None,
        timeout: Duration = 5,
    ) -> None:
        place = f"the leases in Kubernetes at {mask_url(server).partition('://')[2]}, namespace {namespace}"
        super().__init__(place, clock=clock, timeout=timeout)
        self._token = token
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._namespace = namespace
        try:
            verify = True if authority is None else ssl.create_default_context(cafile=str(authority))
        except (OSError, ssl.SSLError) as unread:
            raise self.wrong(f"{authority}: {unread}") from unread
        self._http = Http([server], timeout=self._timeout, verify=verify)
        self._metadata: dict[str, dict[str, Any]] = {}

    async def get(self, name: str) -> tuple[Record, Version] | None:
        """Read the object; its version is opaque."""
        status, reply = await self._ask("GET", f"{self._path}/{_object(name)}")
        if status == _NOT_FOUND:
            if reply.get("reason") == "NotFound":
                return None
            raise self.wrong(f"status 404, {reply.get('message') or 'there is no such API'}")
        meta = reply["metadata"]
        note = (meta.get("annotations") or {}).get(ANNOTATION, "")
        try:
            record = Record.decode(note.encode())
        except ValueError as fault:
            raise self.wrong(
                f"the Lease {meta['name']} serves something else (its annotation {ANNOTATION}: {fault}): give the election another name, or "
                "delete it"
            ) from fault
        self._metadata[name] = meta
        return record, meta["resourceVersion"]

    async def put(self, name: str, record: Record, expect: Version | None) -> Version | None:
        """Create the object, or replace the one whose version is known. Labels and the like of others
        stay.
        """
        meta = {} if expect is None else dict(self._metadata.get(name, {}))
        meta.pop("managedFields", None)
        notes = {**(meta.get("annotations") or {}), ANNOTATION: record.encode().decode()}
        meta |= {"name": _object(name), "namespace": self._namespace, "annotations": notes}
        if expect is not None:
            meta["resourceVersion"] = expect
        body = {
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": self._spec(record),
        }  # fmt: skip
        new = expect is None
        path = self._path if new else f"{self._path}/{_object(name)}"
        status, reply = await self._ask("POST" if new else "PUT", path, body)
        if status == _NOT_FOUND and expect is None:
            raise self.wrong(reply.get("message") or "there is no such namespace")
        if status in (_CONFLICT, _NOT_FOUND):
            return None
        self._metadata[name] = reply["metadata"]
        return reply["metadata"]["resourceVersion"]

    def _spec(self, record: Record) -> dict[str, Any]:
        """Return what people see; the last holder of a free lease is in the annotation."""
        return {
            "holderIdentity": record.holder or "", "leaseDurationSeconds": max(1, ceil(record.ttl)),
            "acquireTime": _micro_time(record.since), "renewTime": _micro_time(self._clock.wall()), "leaseTransitions": record.epoch,
        }  # fmt: skip

    async def _ask(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, Any]]:
        headers = {"accept": "application/json"}
        if self._token is not None:
            try:
                headers["authorization"] = f"Bearer {self._token.read_text().strip()}"
            except OSError as unread:
                raise self.wrong(f"{self._token}: {unread}") from unread
        status, reply = await self._http.ask(method, path, body, headers)
        if status in (200, 201, _NOT_FOUND, _CONFLICT):
            return status, reply
        reason = f"status {status}, {reply.get('message') or 'without a reason'}"
        if status in (400, 403, 405, 415, 422):  # Not 401: a token may be rotated at this moment.
            raise self.wrong(reason)
        raise self.unavailable(reason)


def _micro_time(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _object(name: str) -> str:
    """Return a name that Kubernetes accepts: the same if it does, else its valid part and a hash."""
    if _NAME.fullmatch(name):
        return name
    left = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "lease"
    return f"{left}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def from_url(url: str, *, clock: Clock, timeout: float) -> KubernetesLeases:
    """Open ``kubernetes:///NAMESPACE`` in a pod, with its service account (default: the pod's own namespace),
    or ``kubernetes://127.0.0.1:8001/NAMESPACE`` through ``kubectl proxy``.

    Raises ``ConfigError`` for another form, or outside a cluster.
    """
    parts = urlsplit(url)
    namespace = parts.path.strip("/")
    if "/" in namespace or parts.query or parts.username or (parts.netloc and not namespace):
        raise ConfigError(
            f"{mask_url(url)!r}: write kubernetes:///NAMESPACE in a pod, or kubernetes://127.0.0.1:8001/NAMESPACE through kubectl proxy"
        )
    if parts.netloc:
        return KubernetesLeases(f"http://{parts.netloc}", namespace, clock=clock, timeout=timeout)
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigError(
            f"{mask_url(url)!r} is for a pod in a cluster, and this is none (no KUBERNETES_SERVICE_HOST): elsewhere run `kubectl proxy` and "
            "write kubernetes://127.0.0.1:8001/NAMESPACE"
        )
    try:
        namespace = namespace or (ACCOUNT / "namespace").read_text().strip()
    except OSError as unread:
        raise ConfigError(
            f"{mask_url(url)!r} names no namespace, and the pod has no service account: {unread}"
        ) from unread
    place = f"[{host}]" if ":" in host else host
    return KubernetesLeases(
        f"https://{place}:{port}", namespace, clock=clock, token=ACCOUNT / "token", authority=ACCOUNT / "ca.crt",
        timeout=timeout,
    )  # fmt: skip
