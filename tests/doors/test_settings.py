"""Settings: flag over environment over file over default, and every mistake told with what was meant."""

import re
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from makegood.base.durations import seconds
from makegood.base.sizes import size
from makegood.cli import exits, main
from makegood.cli.settings import KNOWN, load
from makegood.election.command import UNKEPT
from makegood.errors import ConfigError
from makegood.options import DEFAULT_URL, Options
from makegood.store import open_store


def write(folder: Path, name: str, text: str) -> None:
    """Put a file of settings into a folder."""
    (folder / name).write_text(text, encoding="utf-8")


def test_defaults_are_those_of_the_engine(tmp_path: Path) -> None:
    """With nothing set, the store is the engine's default and so is every option, but that nothing migrates unasked."""
    settings = load({}, {}, tmp_path)
    assert settings.store == DEFAULT_URL
    assert settings.options == Options(migrate=False)
    assert dict(settings.origins) == {}


def test_flag_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    """Each source overrides those below it, one setting at a time, and its origin is known."""
    write(tmp_path, "makegood.toml", 'store = "sqlite:///file.db"\nsupervise_every = "9s"\ndrain = 3\n')
    environ = {"MAKEGOOD_STORE": "sqlite:///environ.db", "MAKEGOOD_SUPERVISE_EVERY": "7s"}
    settings = load({"store": "sqlite:///flag.db"}, environ, tmp_path)
    assert settings.store == "sqlite:///flag.db"
    assert settings.options.number("supervise_every") == 7
    assert settings.options.number("drain") == 3
    assert settings.options.number("lease") == 15
    assert dict(settings.origins) == {
        "store": "--store",
        "supervise_every": "MAKEGOOD_SUPERVISE_EVERY",
        "drain": "drain in makegood.toml",
    }


def test_pyproject_is_read_where_there_is_no_file_of_our_own(tmp_path: Path) -> None:
    """``[tool.makegood]`` counts; makegood.toml, where there is one, counts alone."""
    write(
        tmp_path,
        "pyproject.toml",
        '[tool.other]\nx = 1\n[tool.makegood]\nstore = "sqlite:///shared.db"\nslots = 4\n',
    )
    assert load({}, {}, tmp_path).store == "sqlite:///shared.db"
    assert load({}, {}, tmp_path).options.slots == 4
    write(tmp_path, "makegood.toml", "max_tasks = 5\n")
    settings = load({}, {}, tmp_path)
    assert (settings.store, settings.options.max_tasks, settings.options.slots) == (DEFAULT_URL, 5, None)


def test_values_of_the_environment_get_their_types(tmp_path: Path) -> None:
    """Text becomes numbers, durations and choices; poll may be "never"; empty means not set."""
    environ = {
        "MAKEGOOD_SLOTS": "12", "MAKEGOOD_HEARTBEAT": "0.5", "MAKEGOOD_DEAD_AFTER": "2s", "MAKEGOOD_POLL_EVERY": "never",
        "MAKEGOOD_COLOR": "Never", "MAKEGOOD_STORE": "",
    }  # fmt: skip
    settings = load({}, environ, tmp_path)
    assert settings.options.slots == 12
    assert settings.options.number("heartbeat") == 0.5
    assert settings.options._poll_seconds is None
    assert settings.color == "never"
    assert settings.store == DEFAULT_URL


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ('stroe = "sqlite:///x.db"', r"makegood\.toml: 'stroe' is not a setting; did you mean store\?"),
        ("foo = 1", r"'foo' is not a setting; the settings are store, color, "),
        (
            "supervise_every = 'often'",
            r"supervise_every in makegood\.toml='often' is not a duration: write seconds, or \"200ms\"",
        ),
        ("log-level = 'info'", r"did you mean log_level\?"),
        ("xyz = 1", r"'xyz' is not a setting; the settings are store, color"),
        ("supervise_every = 'soon'", r"supervise_every in makegood\.toml='soon' is not a duration"),
        ("slots = 0", r"slots in makegood\.toml=0: a whole number of at least 1"),
        ("slots = true", r"slots in makegood\.toml=True: a whole number"),
        ("color = 'pink'", r"one of auto, always, never"),
        ("store = 3", r"store in makegood\.toml: a text is expected, not int"),
        ("dead_after = 1\nheartbeat = 1", r"must be at least twice heartbeat"),
        ("store = ", r"makegood\.toml cannot be read"),
    ],
)
def test_a_mistake_in_a_file_is_told_with_its_place(tmp_path: Path, text: str, pattern: str) -> None:
    """Unknown names say which known one is near, wrong values where they stand and what is expected."""
    write(tmp_path, "makegood.toml", text)
    with pytest.raises(ConfigError, match=pattern):
        load({}, {}, tmp_path)


def test_a_near_miss_in_the_environment_is_an_error_and_a_strange_name_is_not(tmp_path: Path) -> None:
    """MAKEGOOD_ is a prefix that other programs may share, but a slip of the pen must not pass in silence."""
    with pytest.raises(ConfigError, match=r"MAKEGOOD_STROE is not a setting; did you mean MAKEGOOD_STORE\?"):
        load({}, {"MAKEGOOD_STROE": "sqlite:///x.db"}, tmp_path)
    load({}, {"MAKEGOOD_DEMO_SERVICES": "http://127.0.0.1:1", "MAKEGOOD_TEST_POSTGRES": "x"}, tmp_path)


ONE, TWO, THREE = (f"whsec_{name * 32}" for name in "abc")


def test_secrets_of_receivers_are_read_from_a_table_and_from_the_environment(tmp_path: Path) -> None:
    """In a file only as @FILE; in the environment either way. Several for one receiver while they are changed."""
    write(tmp_path, "one", f"{ONE}\n")
    write(tmp_path, "two", f"{TWO}\n{THREE}\n")
    write(
        tmp_path,
        "makegood.toml",
        f'[webhook_secrets]\n"a.example.com:8443" = "@{tmp_path}/one"\n"*.b.example" = "@{tmp_path}/two"\n',
    )
    options = load({}, {}, tmp_path).options
    assert options._receivers == {"a.example.com:8443": (ONE,), "*.b.example": (TWO, THREE)}
    assert ONE not in repr(options)
    environ = {
        "MAKEGOOD_WEBHOOK_SECRETS": f"a.example.com={ONE} a.example.com=@{tmp_path}/two [::1]:80={THREE}"
    }
    settings = load({}, environ, tmp_path)
    assert settings.options._receivers == {"a.example.com": (ONE, TWO, THREE), "[::1]:80": (THREE,)}
    assert settings.origins["webhook_secrets"] == "MAKEGOOD_WEBHOOK_SECRETS"


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        (f'"a.example" = "{ONE}"', r"webhook_secrets in makegood.toml: 'a\.example': a secret does not belong there: write @FILE, or set MAKEGOOD_WEBHOOK_SECRETS"),
        ('"a.example" = "@/no/such/file"', r"webhook_secrets .*'a\.example': its file cannot be read"),
        ('"a.example" = 3', r"webhook_secrets .*'a\.example': a text is expected, not int"),
        ("", "write which receiver has which secret"),
    ],
)  # fmt: skip
def test_a_secret_of_a_receiver_that_cannot_be_read_is_told_with_its_place(
    tmp_path: Path, text: str, pattern: str
) -> None:
    write(tmp_path, "makegood.toml", f"[webhook_secrets]\n{text}\n")
    with pytest.raises(ConfigError, match=pattern) as error:
        load({}, {}, tmp_path)
    assert ONE not in str(error.value)


@pytest.mark.parametrize("secrets", [ONE, "a.example", "a.example=", f"={ONE}", "a.example=whsec_short", f"{ONE}==", f"a b.example={ONE}"])  # fmt: skip
def test_secrets_of_receivers_that_cannot_be_meant_are_refused_and_not_shown(
    tmp_path: Path, secrets: str
) -> None:
    with pytest.raises(ConfigError, match=r"(?i)webhook_secrets") as error:
        load({}, {"MAKEGOOD_WEBHOOK_SECRETS": secrets}, tmp_path)
    assert "a" * 32 not in str(error.value)
    with pytest.raises(ConfigError, match=r"MAKEGOOD_WEBHOOK_CAUSE='all': one of text, name, none"):
        load({}, {"MAKEGOOD_WEBHOOK_CAUSE": "all"}, tmp_path)


def test_every_option_of_a_node_is_a_setting(tmp_path: Path) -> None:
    """Whatever ``Options`` gains must be reachable from outside; only ``migrate`` is the command's own business."""
    assert set(Options.__dataclass_fields__) - {"migrate"} <= set(KNOWN)
    assert load({}, {}, tmp_path).options.migrate is False


def test_the_page_lists_every_setting_with_its_default() -> None:
    """docs/reference/settings.md and the code say the same."""
    page = (Path(__file__).resolve().parents[2] / "docs/reference/settings.md").read_text(encoding="utf-8")
    page = page.replace(
        "| in a file only |", "| `MAKEGOOD_CONSOLE_USERS` |"
    )  # a table has no form in the environment
    rows = re.findall(r"^\| `(\w+)` \| `MAKEGOOD_(\w+)` \| ([^|]+) \|", page, re.MULTILINE)
    assert [name for name, _, _ in rows] == list(KNOWN)
    assert all(variable == name.upper() for name, variable, _ in rows)
    options = Options()
    for name, _, default in rows:
        if name in Options.__dataclass_fields__ and name != "slots":
            default_text = default.strip("` ")
            if default_text == "none":
                assert getattr(options, name) is None
                continue
            if default_text == getattr(options, name):
                continue
            if default_text.endswith("iB"):
                same = size(default_text) == options.size(name)
            elif default_text.isdecimal():
                same = int(default_text) == getattr(options, name)
            else:
                same = seconds(default_text) == options.number(name)
            assert same, name


def test_the_page_lists_every_exit_code() -> None:
    """The table of codes is that of the code."""
    page = (Path(__file__).resolve().parents[2] / "docs/reference/cli.md").read_text(encoding="utf-8")
    page_codes = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    codes = {value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}
    assert page_codes == codes | {UNKEPT, 128 + signal.SIGTERM}


def test_what_postgres_needs_is_told_so_that_it_works_for_a_checkout_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The driver alone is enough for everybody; the extra is written as in the README."""

    def missing(name: str) -> object:
        raise ModuleNotFoundError("No module named 'asyncpg'", name="asyncpg")

    monkeypatch.setattr("makegood.base.extras.import_module", missing)
    with pytest.raises(ConfigError, match=r"pip install asyncpg.*pip install '\.\[postgres\]'"):
        open_store("postgresql://me@db/shop")


@pytest.mark.parametrize(
    ("environ", "pattern"),
    [
        (
            {"MAKEGOOD_SUPERVISE_EVERY": "0"},
            r"supervise_every=0.0 .* at least 0.01 s \(MAKEGOOD_SUPERVISE_EVERY\)",
        ),
        (
            {"MAKEGOOD_DEAD_AFTER": "1", "MAKEGOOD_LATE_AFTER": "1"},
            r"at least twice heartbeat.*\(MAKEGOOD_DEAD_AFTER\)$",
        ),
    ],
)
def test_settings_that_the_engine_refuses_are_named_as_they_were_written(
    environ: dict[str, str], pattern: str, tmp_path: Path
) -> None:
    """The engine knows its own names of them only."""
    with pytest.raises(ConfigError, match=pattern):
        load({}, environ, tmp_path)


def test_a_variable_of_somebody_elses_is_no_mistake_and_a_misspelt_setting_is(tmp_path: Path) -> None:
    """Kubernetes sets variables for a Service called makegood, or whose name begins so; a user has some of his own."""
    foreign = (
        "MAKEGOOD_FOO", "MAKEGOOD_SERVICE_HOST", "MAKEGOOD_SERVICE_PORT", "MAKEGOOD_SERVICE_PORT_HTTP", "MAKEGOOD_PORT",
        "MAKEGOOD_PORT_9464_TCP", "MAKEGOOD_PORT_9464_TCP_PROTO", "MAKEGOOD_PORT_9464_TCP_ADDR", "MAKEGOOD_HEARTBEAT_PORT",
        "MAKEGOOD_WEBHOOK_HOSTS_PORT", "MAKEGOOD_STORE_SERVICE_HOST", "MAKEGOOD_OUTBOX",
    )  # fmt: skip
    assert load({}, dict.fromkeys(foreign, "tcp://10.0.0.1:80"), tmp_path).origins == {}
    for misspelt, suggestion in (
        ("MAKEGOOD_STOER", "MAKEGOOD_STORE"),
        ("MAKEGOOD_DAED_AFTER", "MAKEGOOD_DEAD_AFTER"),
        ("MAKEGOOD_WEBHOOK_HOST", "MAKEGOOD_WEBHOOK_HOSTS"),
    ):
        with pytest.raises(ConfigError, match=f"{misspelt} is not a setting; did you mean {suggestion}"):
            load({}, {misspelt: "1"}, tmp_path)


def test_files_as_editors_on_windows_write_them_are_read(tmp_path: Path) -> None:
    """A byte order mark and CRLF change nothing, in the file of settings and in @FILE."""
    (tmp_path / "url").write_bytes(b"\xef\xbb\xbfsqlite:///bom.db\r\n")
    (tmp_path / "url").chmod(0o600)
    (tmp_path / "makegood.toml").write_bytes(f'\ufeffstore = "@{tmp_path / "url"}"\r\nslots = 3\r\n'.encode())
    settings = load({}, {}, tmp_path)
    assert (settings.store, settings.options.slots) == ("sqlite:///bom.db", 3)


def test_a_file_in_another_encoding_is_named_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "makegood.toml").write_bytes('store = "sqlite:///a.db"'.encode("utf-16"))
    with pytest.raises(ConfigError, match=r"makegood.toml cannot be read: it is not UTF-8; save it as UTF-8"):
        load({}, {}, tmp_path)


def test_never_is_none_in_python_and_a_word_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"retention='never' is not a duration: .*; None means never"):
        Options(retention="never")
    with pytest.raises(ConfigError, match="drain=None is not a duration"):
        Options(drain=None)  # type: ignore[arg-type]  # it may not be
    with pytest.raises(ConfigError, match=r'retention=.* is not a duration: .*; "never" for none'):
        load({"retention": "no"}, {}, tmp_path)


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        ("sqlite://", "'sqlite://': write sqlite:///file.db"),
        ("postgresql+asyncpg://me@127.0.0.1/x", r"\+asyncpg is for SQLAlchemy, leave it out"),
        ("sqlite+aiosqlite:///x.db", r"\+aiosqlite is for SQLAlchemy, leave it out"),
        ("postgresql://me:p@ss@127.0.0.1/x", "percent-encode user and password"),
    ],
)
def test_a_url_of_another_tool_is_refused_with_a_legible_remedy(url: str, remedy: str) -> None:
    answer = CliRunner().invoke(main, ["task", "list", "--store", url])
    assert answer.exit_code == 2
    assert re.search(remedy, answer.stderr)
    assert "ss@" not in answer.stderr


def test_brokers_are_a_table_a_list_or_a_variable_each(tmp_path: Path) -> None:
    """A broker of the environment joins those of the file, and takes the place of its namesake."""
    secret = tmp_path / "url"
    secret.write_text("nats://shop:s3cret@nats.example")
    secret.chmod(0o600)
    write(
        tmp_path, "makegood.toml",
        f'reply_to_brokers = "amqp:main/notices kafka:logs/shop.*"\n[brokers]\nmain = "amqp://old.example"\nevents = "@{secret}"\n',
    )  # fmt: skip
    environ = {
        "MAKEGOOD_BROKERS": "logs=kafka://k.example",
        "MAKEGOOD_BROKERS_MAIN": "amqps://shop@mq.example/prod",
    }
    options = load({}, environ, tmp_path).options
    assert {name: (target.kind, target.safe_url) for name, target in options._broker_targets.items()} == {
        "main": ("amqp", "amqps://shop@mq.example/prod"),
        "events": ("nats", "nats://shop:•••@nats.example"),
        "logs": ("kafka", "kafka://k.example"),
    }


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('brokers = "main"', "write which broker is where"),
        ('[brokers]\nmain = "http://mq.example"', "'http' is not the scheme of a broker"),
        ('[brokers]\nmain = "amqp://a:b@c:d@host"', "more than one @"),
        ('[brokers]\n"a/b" = "amqp://host"', "cannot be a name"),
        ('reply_to_brokers = "amqp:main/x"', "the settings of this process lack"),
        (
            'reply_to_brokers = "kafka:main/x"\n[brokers]\nmain = "amqp://host"',
            "says? that 'main' is RabbitMQ|RabbitMQ",
        ),
        ('reply_to_brokers = "amqp:main/a*b"\n[brokers]\nmain = "amqp://host"', "perhaps with a"),
        ('reply_to_brokers = "amqp://host/q"\n[brokers]\nmain = "amqp://host"', "no URL belongs here"),
        ('reply_to_brokers = "nats:main"\n[brokers]\nmain = "nats://host"', 'write "nats:NAME/PLACE", with'),
        (
            'reply_to_brokers = "amqp:main/a,amqp:main/b, amqp:main/c"\n[brokers]\nmain = "amqp://host"',
            "^reply_to_brokers: separate addresses by spaces, not commas: 'amqp:main/a amqp:main/b amqp:main/c'$",
        ),
        ('reply_to_brokers = "amqp://a:b@c/d,amqp:main/x"', "separate addresses by spaces, not commas$"),
        ('webhook_hosts = "a.example,b.example"', "webhook_hosts: .*: 'a.example b.example'$"),
        ("reply_to_brokers = [1]", "a text is expected"),
        (
            '[brokers]\nmain = "amqp://host"\nreply_to_brokers = "amqp:main/x"',
            r"^reply_to_brokers is a setting of its own, not a broker: write it above \[brokers\]$",
        ),
        ("[brokers]\nslots = 4", "slots is a setting of its own"),
        ('[brokers]\nstore = "@missing"', "its file cannot be read"),
    ],
)
def test_a_broker_that_cannot_be_is_refused_without_its_url(
    tmp_path: Path, text: str, complaint: str
) -> None:
    write(tmp_path, "makegood.toml", text + "\n")
    with pytest.raises(ConfigError, match=complaint) as refusal:
        load({}, {}, tmp_path)
    assert "a:b" not in str(refusal.value)


def test_a_list_of_a_file_is_a_text_with_spaces(tmp_path: Path) -> None:
    """A comma within a queue's name stays, and a broker may have the name of a setting."""
    write(
        tmp_path, "makegood.toml",
        'reply_to_brokers = ["amqp:store/a,b", "amqp:store/c"]\nwebhook_hosts = ["a.example", "b.example"]\n'
        'console_proxies = ["10.0.0.0/8", "127.0.0.1"]\n[brokers]\nstore = "amqp://host"\n',
    )  # fmt: skip
    settings = load({}, {}, tmp_path)
    assert settings.options.reply_to_brokers == "amqp:store/a,b amqp:store/c"
    assert settings.options.webhook_hosts == "a.example b.example"
    with pytest.raises(
        ConfigError, match="reply_to_brokers: write one text, with spaces between the entries"
    ):
        Options(reply_to_brokers=["amqp:main/a"])  # type: ignore[arg-type]  # what the test is about


def test_a_broker_of_the_environment_is_named_by_its_variable(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^MAKEGOOD_BROKERS_MAIN: a text is expected, not an empty one"):
        load({}, {"MAKEGOOD_BROKERS_MAIN": ""}, tmp_path)
    with pytest.raises(ConfigError, match=r"^MAKEGOOD_BROKERS_MAIN: its file cannot be read"):
        load({}, {"MAKEGOOD_BROKERS_MAIN": f"@{tmp_path / 'missing'}"}, tmp_path)
    write(tmp_path, "makegood.toml", '[brokers]\nlogs = "kafka://host"\n')
    environ = {"MAKEGOOD_BROKERS_MAIN": "amqp://host", "MAKEGOOD_BROKERS": "a=nats://host"}
    settings = load({}, environ, tmp_path)
    assert settings.origins["brokers"] == "brokers in makegood.toml, MAKEGOOD_BROKERS_MAIN, MAKEGOOD_BROKERS"
    assert sorted(settings.options.brokers or {}) == ["a", "logs", "main"]
