"""The files that a PostgreSQL URL names for TLS. The driver reads them when it connects, and its errors are
those of an unreachable server; they name neither file nor parameter.
"""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from makegood.errors import ConfigError

_FILES: Final = ("sslrootcert", "sslcrl", "sslcert", "sslkey")


def verify_tls_files(values: Mapping[str, str], sources: Mapping[str, str]) -> None:
    """Raise ``ConfigError`` for a file that cannot be read, or does not hold what its parameter says.

    ``sources``: where each parameter was written.
    """
    if values.get("sslmode") == "disable":
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for name in _FILES:
        file = values.get(name)
        if not file:
            continue
        where = f"{sources[name]}: {name}={file}"
        try:
            Path(file).read_bytes()
            if name != "sslkey":
                context.load_verify_locations(cafile=file)
        except ssl.SSLError:
            kind = "list of revoked certificates" if name == "sslcrl" else "certificate"
            raise ConfigError(
                f"{where} holds no {kind} in PEM form (-----BEGIN ...): name another file"
            ) from None
        except (OSError, ValueError) as fault:
            why = (getattr(fault, "strerror", None) or str(fault)).lower()
            raise ConfigError(
                f"{where} cannot be read ({why}): correct the path, or let this process's user read the file"
            ) from None
    if certificate := values.get("sslcert"):
        _verify_pair(context, certificate, values, sources)


def _verify_pair(
    context: ssl.SSLContext, certificate: str, values: Mapping[str, str], sources: Mapping[str, str]
) -> None:
    usual = Path.home() / ".postgresql" / "postgresql.key"
    key = values.get("sslkey") or (str(usual) if usual.is_file() else None)
    try:
        context.load_cert_chain(certificate, keyfile=key, password=lambda: values.get("sslpassword", ""))
    except (OSError, ValueError):
        subject = f"sslkey={key}" if key else f"sslcert={certificate}, without an sslkey"
        raise ConfigError(
            f"{sources['sslcert']}: {subject} holds no private key in PEM form that fits sslcert={certificate}: name its key, and its "
            "password with sslpassword if it has one"
        ) from None
