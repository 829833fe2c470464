"""``makegood broker``: what waits, what is wrong with a broker, and which rights it grants; in a real process where a broker is none."""

import json
import socket

from tests.doors.conftest import Shop


def closed_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def test_without_brokers_each_command_says_what_to_write(shop: Shop) -> None:
    shop.done("store", "migrate")
    empty = shop.call("broker", "list")
    assert (empty.exit_code, "no process takes orders from a broker" in empty.output) == (0, True)
    assert shop.json("broker", "list") == {"sources": [], "receivers": []}
    nothing = shop.call("broker", "check")
    assert (nothing.exit_code, "[brokers] in makegood.toml, or MAKEGOOD_BROKERS_NAME" in nothing.stderr) == (
        2,
        True,
    )
    unknown = shop.call("broker", "permissions", "main")
    assert (unknown.exit_code, "neither a broker of the settings" in unknown.stderr) == (2, True)
    absent = shop.call("inbox", "--from", "amqp:main/orders")
    assert (absent.exit_code, "which the settings of this process lack" in absent.stderr) == (2, True)
    table = shop.call("inbox", "--from", "amqp:main/orders", "--ddl")
    assert (table.exit_code, "a broker has no table" in table.stderr) == (2, True)


def test_a_broker_that_is_away_is_an_error_with_a_remedy_and_no_password(shop: Shop) -> None:
    """The command, the doctor and the rights show where the broker is, and never the password."""
    shop.done("store", "migrate")
    main = {"MAKEGOOD_BROKERS_MAIN": f"amqp://shop:hunter-2@127.0.0.1:{closed_port()}/"}
    check = shop.call("broker", "check", "amqp:main/orders", **main)
    assert (check.exit_code, "amqp:main/orders: " in check.stdout) == (1, True)
    doctor = shop.call("doctor", "--json", **main)
    report = json.loads(doctor.stdout)
    assert [finding["severity"] for finding in report["findings"] if finding["check"] == "broker"] == [
        "error"
    ]
    settings = {row["name"]: row["value"] for row in report["settings"]}
    assert settings["brokers"]["main"].startswith("amqp://shop:***@127.0.0.1:")
    rights = shop.call("broker", "permissions", "amqp:main/orders", "--to", "notices", **main)
    assert "set_permissions" in rights.stdout
    wrong = shop.call("broker", "check", "kafka:main/orders", **main)
    assert (wrong.exit_code, "'main' is RabbitMQ" in wrong.stderr) == (2, True)
    for call in (check, doctor, rights, wrong):
        assert "hunter-2" not in call.stdout + call.stderr
