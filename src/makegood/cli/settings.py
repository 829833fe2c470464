"""Settings: one frozen record, read once.

The order of precedence is flag, environment ``MAKEGOOD_*``, file, default. The file is ``makegood.toml`` or
``[tool.makegood]`` in ``pyproject.toml`` of the current folder: the first that exists with settings. An
unknown name is an error that names the nearest known one. In the environment only names close to a known one
are errors, because a user's own variables may share the prefix ``MAKEGOOD_``.
"""

import contextlib
import dataclasses
import difflib
import ipaddress
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import get_args

from makegood.base.durations import AS_TEXT, Duration, seconds
from makegood.base.host_port import host_and_port
from makegood.base.postgres_target import with_tls
from makegood.base.private_files import check_trusted, secret_in
from makegood.base.sizes import Size, size
from makegood.base.webhook_signature import address
from makegood.brokers.kinds import targets_of
from makegood.console.users import Role, User, role_of, users_of
from makegood.errors import ConfigError
from makegood.options import DEFAULT_URL, Options

PREFIX = "MAKEGOOD_"
_OF_A_SERVICE = re.compile(r"(^|_)(service_host|service_port(_\w+)?|port(_\d+_(tcp|udp|sctp)(_\w+)?)?)$")
_BROKER = "brokers_"
"""How the setting of one broker begins in the environment: MAKEGOOD_BROKERS_MAIN."""
COLORS = ("auto", "always", "never")
LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")


def _text(value: object, name: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{name}={value!r}: a text is expected")
    return value


def _list(value: object, name: str) -> str:
    """Return a list with spaces between its entries; in a file it may be a list of texts."""
    if isinstance(value, list) and value and all(isinstance(entry, str) for entry in value):
        return _text(" ".join(value), name)
    return _text(value, name)


def _choice(*choices: str) -> Callable[[object, str], str]:
    def convert(value: object, name: str) -> str:
        if not isinstance(value, str) or value.lower() not in choices:
            raise ConfigError(f"{name}={value!r}: one of {', '.join(choices)}")
        return value.lower()

    return convert


def _listen(value: object, name: str) -> str:
    text = _text(value, name)
    host_and_port(text, name)
    return text


def duration(value: object, name: str, syntax: str = AS_TEXT) -> Duration:
    """Return a duration that was given on the command line, in the environment or in a file.

    Raises ``ConfigError``.
    """
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = float(value)  # there, seconds are text as well
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ConfigError(f"{name}={value!r} is not a duration: {syntax}")
    seconds(value, name=name, written=syntax)
    return value


def _address(value: object, name: str) -> str:
    text = _secret_text(value, name)
    address(text, name)
    return text


def _secret_text(value: object, name: str) -> str:
    """Return a text that may hold a secret; no error shows it."""
    if not isinstance(value, str) or not value.strip():
        kind = "an empty one" if isinstance(value, str) else type(value).__name__
        raise ConfigError(f"{name}: a text is expected, not {kind}")
    return value


def _store(value: object, name: str) -> str:
    """Return a store's URL, from a file as @FILE."""
    return secret_in(_secret_text(value, name).strip(), name)


def _secret(value: object, name: str) -> str:
    """Return a secret.

    The environment may hold the secret itself or @FILE; a file must name it as @FILE.
    """
    text = _secret_text(value, name)
    if not text.startswith("@") and not name.startswith(PREFIX):
        raise ConfigError(
            f"{name}: a secret does not belong there: write @FILE, or set {PREFIX}{name.partition(' ')[0].upper()}"
        )
    return secret_in(text, name)


def _pairs(value: object) -> list[tuple[str, object]]:
    """Return what a table of a file holds, or the NAME=VALUE of the environment; else nothing."""
    if isinstance(value, str):
        return [(name, text) for name, _, text in (word.partition("=") for word in value.split())]
    return list(value.items()) if isinstance(value, dict) else []


def _secrets(value: object, name: str) -> dict[str, str]:
    """Return secrets by receiver.

    In a file they are a table. In the environment they are HOST=SECRET, separated by spaces; a repeated host
    adds a further secret.
    """
    pairs = _pairs(value)
    if not pairs or not all(host and secret and not host.startswith("whsec_") for host, secret in pairs):
        raise ConfigError(f"{name}: write which receiver has which secret: {_SECRETS}")
    secrets: dict[str, str] = {}
    for host, secret in pairs:
        secret_text = _secret(secret, name if name.startswith(PREFIX) else f"{name}: {host!r}")
        secrets[host] = f"{secrets[host]} {secret_text}" if host in secrets else secret_text
    return secrets


def _brokers(value: object, name: str) -> dict[str, str]:
    """Return the URLs of brokers by name: in a file a table, in the environment NAME=URL, separated by
    spaces.
    """
    pairs = _pairs(value)
    if not pairs or not all(broker and url for broker, url in pairs):
        raise ConfigError(
            f'{name}: write which broker is where: main = "amqps://user@host/vhost" below [brokers] in a file, '
            f"{PREFIX}BROKERS_MAIN=amqps://user@host/vhost in the environment; @FILE for a URL with a password"
        )
    urls: dict[str, str] = {}
    for broker, url in pairs:
        try:
            urls[broker] = _store(url, f"{name}: {broker!r}")
            if broker in KNOWN:  # "store" may be a broker's name, too
                targets_of({broker: urls[broker]})
        except ConfigError:
            if broker in KNOWN and not name.startswith(PREFIX) and not str(url).startswith("@"):
                raise ConfigError(
                    f"{broker} is a setting of its own, not a broker: write it above [brokers]"
                ) from None
            raise
    return urls


def _users(value: object, name: str) -> dict[str, User]:
    if not isinstance(value, dict):
        raise ConfigError(f'{name}: a table of a file: [console_users], then NAME = "ROLE HASH"')
    return users_of(value, name)


def _addresses(value: object, name: str) -> tuple[str, ...]:
    """Return addresses and networks, which blanks or commas separate."""
    addresses = tuple(_list(value, name).replace(",", " ").split())
    for entry in addresses:
        try:
            ipaddress.ip_network(entry, strict=False)
        except ValueError:
            raise ConfigError(
                f"{name}: {entry!r} is neither an address nor a network such as 10.0.0.0/8"
            ) from None
    return addresses


def _poll(value: object, name: str) -> Duration | None:
    return None if value == "never" else duration(value, name, f'{AS_TEXT}; "never" for none')


def _count(value: object, name: str) -> int:
    if isinstance(value, str) and len(value.strip()) < 20 and value.strip().isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{name}={value!r}: a whole number of at least 1 is expected")
    return value


def _size(value: object, name: str) -> Size:
    amount = value if isinstance(value, int | str) else repr(value)
    size(amount, name=name)
    return amount


_SWITCH: Mapping[str, bool] = MappingProxyType(
    {"on": True, "true": True, "yes": True, "1": True, "off": False, "false": False, "no": False, "0": False}
)


def _switch(value: object, name: str) -> bool:
    setting = _SWITCH.get(str(value).lower())
    if setting is None:
        raise ConfigError(f"{name}={value!r}: on or off")
    return setting


_SECRETS = (
    '"a.example.com" = "@FILE" below [webhook_secrets] in a file, a.example.com=@FILE in the environment'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CliSettings:
    """The settings of one call of the command line.

    ``read`` in a field's metadata converts a value as people write it, or raises ``ConfigError``.
    """

    store: str = field(default=DEFAULT_URL, metadata={"read": _store})
    """The store's URL."""
    color: str = field(default="auto", metadata={"read": _choice(*COLORS)})
    """auto, always or never."""
    name: str | None = field(default=None, metadata={"read": _text})
    """What a process's name in lists begins with; its pid follows. None: the host's name."""
    log_level: str = field(default="info", metadata={"read": _choice(*LEVELS)})
    """The level of the processes' logs."""
    log_format: str = field(default="text", metadata={"read": _choice(*FORMATS)})
    """The format of the processes' logs: text or json."""
    listen: str | None = field(default=None, metadata={"read": _listen})
    """Where processes answer probes and scrapers, "HOST:PORT"; None = nowhere."""
    console: str | None = field(default=None, metadata={"read": _listen})
    """Where the console listens, "HOST:PORT"; None: `makegood run` serves none."""
    console_users: Mapping[str, User] = field(
        default_factory=lambda: MappingProxyType({}), metadata={"read": _users}
    )
    """Who may log in to the console, by name."""
    console_proxies: tuple[str, ...] = field(default=(), metadata={"read": _addresses})
    """The proxies whose headers the console believes: addresses or networks."""
    console_user_header: str | None = field(default=None, metadata={"read": _text})
    """The header in which such a proxy names the user."""
    console_role: Role | None = field(default=None, metadata={"read": role_of})
    """The role of a user of the console who has none otherwise."""
    console_base: str = field(default="", metadata={"read": _text})
    """The path under which a proxy serves the console."""
    console_secret: str | None = field(default=None, repr=False, metadata={"read": _secret})
    """Signs logins of the console; processes behind one address share it."""
    console_token: str | None = field(default=None, repr=False, metadata={"read": _secret})
    """What opens a console without users; None: what the user's private file holds."""
    console_trace_url: str | None = field(default=None, metadata={"read": _text})
    """The address of a trace where traces are kept, with ``{trace}`` in the place of its id."""
    console_insecure: bool = field(default=False, metadata={"read": _switch})
    """Whether other machines may use the console without a login."""
    traces: bool = field(default=False, metadata={"read": _switch})
    """Whether processes send spans."""
    require_tls: bool = field(default=False, metadata={"read": _switch})
    """Send nothing to a PostgreSQL server on another machine except over TLS."""
    options: Options = field(default_factory=lambda: Options(migrate=False))
    """How a process runs its roles."""
    origins: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Where each setting comes from ("--slots", "MAKEGOOD_SLOTS", "slots in makegood.toml"); missing: the
    default.
    """


_OPTIONS = {option.name: option for option in dataclasses.fields(Options)}


def _option(name: str) -> Callable[[object, str], object]:
    """Return the function that converts a setting of the engine: what ``Options`` says of it decides."""
    about = _OPTIONS[name].metadata
    if "least" in about:
        return _poll if type(None) in get_args(_OPTIONS[name].type) else duration
    return {"count": _count, "size": _size, "list": _list}.get(about.get("kind", ""), _text)


KNOWN: Mapping[str, Callable[[object, str], object]] = {
    **{each.name: each.metadata["read"] for each in dataclasses.fields(CliSettings) if each.metadata},
    **{name: _option(name) for name in _OPTIONS if name != "migrate"},
    "alert_webhook": _address,
    "alert_secret": _secret,
    "webhook_secret": _secret,
    "webhook_secrets": _secrets,
    "webhook_cause": _choice("text", "name", "none"),
    "brokers": _brokers,
}
"""Every setting, by its name in a file, with a function that converts a value or raises ``ConfigError``."""


def load(
    flags: Mapping[str, object], environ: Mapping[str, str] | None = None, folder: Path | None = None
) -> CliSettings:
    """Return the settings.

    ``flags``: those given on the command line. ``environ``, ``folder``: by default this process's. Raises
    ``ConfigError`` for an unknown name and for an invalid value, and says where it is set.
    """
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    environ = os.environ if environ is None else environ
    for origin, table in (
        _from_files(folder or Path.cwd()),
        ("", _from_environment(environ)),
        ("flag", dict(flags)),
    ):
        for name, value in table.items():
            place = _place(origin, name)
            setting = KNOWN[name](value, place)
            if name == "brokers" and not origin:
                # A broker of the environment joins those of the file, or takes the place of its namesake.
                setting = {**values.get(name, {}), **setting}  # type: ignore[dict-item]
                place = ", ".join([*filter(None, [origins.get(name)]), *_broker_variables(environ)])
            values[name], origins[name] = setting, place
    options = {name: value for name, value in values.items() if name in _OPTIONS}
    rest = {name: value for name, value in values.items() if name not in _OPTIONS}
    if rest.get("require_tls"):
        rest["store"] = with_tls(str(rest.get("store", DEFAULT_URL)))
    return CliSettings(
        **rest,  # type: ignore[arg-type]  # each was converted to the type of its field above
        options=_options(options, origins),
        origins=MappingProxyType(origins),
    )


def _place(origin: str, name: str) -> str:
    """Return how a setting is written where it comes from."""
    places = {"": PREFIX + name.upper(), "flag": "--" + name.replace("_", "-")}
    return places.get(origin, f"{name} in {origin}")


def _options(values: Mapping[str, object], origins: Mapping[str, str]) -> Options:
    """Return the settings of the engine.

    The error for settings that contradict each other says where each of them is set.
    """
    try:
        return Options(migrate=False, **values)  # type: ignore[arg-type]  # each was converted to the type of its field
    except ConfigError as wrong:
        text = str(wrong)
        sources = [where for name, where in origins.items() if name in values and f"{name}=" in text]
        raise ConfigError(f"{text} ({', '.join(sources)})" if sources else text) from wrong


def _from_files(folder: Path) -> tuple[str, dict[str, object]]:
    """Return the file's name and what it says."""
    own, project_file = folder / "makegood.toml", folder / "pyproject.toml"
    if own.is_file():
        return own.name, _if_trustworthy(own, _check_names(_read(own), own.name))
    if project_file.is_file():
        table = _read(project_file).get("tool", {})
        section = table.get("makegood", {}) if isinstance(table, dict) else {}
        name = f"[tool.makegood] of {project_file.name}"
        if not isinstance(section, dict):
            raise ConfigError(f"{name} must be a table of settings")
        return name, _if_trustworthy(project_file, _check_names(section, name))
    return own.name, {}


def _if_trustworthy(file: Path, values: dict[str, object]) -> dict[str, object]:
    """Return what a file says, if it says anything and only this user or root can have written it."""
    if values:
        check_trusted(file)
    return values


def _read(file: Path) -> dict[str, object]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as wrong:
        raise ConfigError(f"{file.name} cannot be read: it is not UTF-8; save it as UTF-8") from wrong
    except (tomllib.TOMLDecodeError, OSError) as wrong:
        raise ConfigError(f"{file.name} cannot be read: {wrong}") from wrong


def _check_names(values: Mapping[str, object], where: str) -> dict[str, object]:
    for name in values:
        if name not in KNOWN:
            raise ConfigError(f"{where}: {name!r} is not a setting; {_nearest(name)}")
    return dict(values)


def _broker_variables(environ: Mapping[str, str]) -> list[str]:
    """Return the variables that name brokers."""
    names = {each: each.removeprefix(PREFIX).lower() for each in environ if each.startswith(PREFIX)}
    return [
        each for each, name in names.items() if (name == "brokers" and environ[each]) or _names_broker(name)
    ]


def _names_broker(name: str) -> bool:
    return name.startswith(_BROKER) and not _OF_A_SERVICE.search(name)


def _from_environment(environ: Mapping[str, str]) -> dict[str, object]:
    values: dict[str, object] = {}
    brokers: dict[str, str] = {}
    for variable, value in environ.items():
        name = variable.removeprefix(PREFIX).lower()
        if not variable.startswith(PREFIX):
            continue
        if name in KNOWN:
            if value:
                values[name] = value
        elif _names_broker(name):
            brokers[name.removeprefix(_BROKER)] = _store(value, variable)
        elif _misspelt(name):
            raise ConfigError(f"{variable} is not a setting; {_nearest(name, in_environment=True)}")
    if brokers:
        several = values.get("brokers")
        values["brokers"] = {**({} if several is None else _brokers(several, f"{PREFIX}BROKERS")), **brokers}
    return values


def _misspelt(name: str) -> bool:
    """Whether a name in the environment is probably a misspelt setting.

    Variables that Kubernetes sets for a Service called makegood are not, nor are a user's own.
    """
    if _OF_A_SERVICE.search(name):
        return False
    is_swap = any(sorted(name) == sorted(right_name) for right_name in KNOWN)
    return is_swap or bool(difflib.get_close_matches(name, KNOWN, n=1, cutoff=0.8))


def _nearest(name: str, *, in_environment: bool = False) -> str:
    near = difflib.get_close_matches(name.lower().replace("-", "_"), KNOWN, n=1, cutoff=0.6)
    if near:
        return f"did you mean {PREFIX + near[0].upper() if in_environment else near[0]}?"
    return f"the settings are {', '.join(KNOWN)}"
