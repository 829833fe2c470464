"""URLs are read in one way or not at all, and shown without their secrets."""

import pytest

from makegood.base.urls import SERVERS, mask_url, parts_of, scheme_of, scrub
from makegood.brokers import KINDS as BROKERS
from makegood.election.open import KINDS
from makegood.errors import ConfigError


def test_every_server_that_makegood_connects_to_is_known() -> None:
    """Another scheme would be shown without its address."""
    leases = {scheme for scheme, kind in KINDS.items() if kind.module not in ("memory", "sqlite")}
    brokers = {
        form.partition("://")[0]
        for kind in BROKERS.values()
        for form in kind.forms
        if "=" not in form.partition("://")[0]
    }
    assert leases | brokers == SERVERS


@pytest.mark.parametrize(
    ("url", "pattern"),
    [
        ("postgresql://shop:hun/ter2@h/shop", "has an @ after its first /"),
        ("postgresql://shop:hun#ter2@h/shop", "has an @ after its first /"),
        ("postgresql://shop:hun?ter2@h/shop", "has an @ after its first /"),
        ("postgresql://h/shop?password=hun#ter2", "has a part after #"),
        ("postgresql://h/shop?password=hun&ter2", "name=value"),
        ("postgresql://shop:hunter2/shop", "is there an @"),
        ("postgresql://shop:hunter2:5432/shop", "is there an @"),
        ("postgresql://shop:123456/shop", "up to 65535"),
        ("postgresql://shop:hun\nter2@h/shop", "control character"),
        ("postgresql://shop:hun[ter2@h/shop", "cannot be read"),
        ("postgresql://shop:x@h\N{ACCOUNT OF}ter2/shop", "cannot be read"),
        ("postgresql://shop:hun@ter2@h/shop", "more than one @"),
        ("shop:hunter2@h/shop", "does not begin with a scheme"),
    ],
)
def test_a_url_that_can_be_read_in_two_ways_is_refused_and_not_shown(url: str, pattern: str) -> None:
    with pytest.raises(ConfigError, match=rf"(?i)the outbox's URL.*{pattern}") as error:
        parts_of(url, "the outbox's URL")
    assert not any(part in str(error.value) for part in ("hun", "ter2", "123456"))
    scheme = scheme_of(url)
    assert mask_url(url) == (f"{scheme}://•••" if scheme else "•••")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://db", "postgresql:///shop?host=/run/postgresql&user=shop", "postgresql://me@[::1]:5432/shop",
        "postgresql://a:1,b:2/shop?target_session_attrs=primary", "redis://h:6379/0", "etcd://a:2379,b:2379/makegood",
        "zookeeper://h:2181/folder", "kubernetes:///shop", "nats://h:4222/bucket?replicas=3", "sqlite:////var/lib/me@work:1.db",
        "sqlite:///a.db", "memory:", "postgresql://%2Frun%2Fpostgresql/shop",
    ],
)  # fmt: skip
def test_a_url_without_a_secret_is_shown_as_it_is(url: str) -> None:
    assert mask_url(url) == url


@pytest.mark.parametrize(
    ("url", "mask"),
    [
        ("postgresql://me:a@b:c@db/shop", "postgresql://•••"),
        ("postgresql://db/shop?Password=x&user=me", "postgresql://db/shop?Password=•••&user=me"),
        ("postgresql://db/shop?sslmod=require", "postgresql://db/shop?sslmod=•••"),
        ("postgresql://db/shop?password=x&rest=y", "postgresql://db/shop?password=•••&•••"),
        ("redis://:secret@h:6379/0", "redis://:•••@h:6379/0"),
        ("nats://token@h:4222", "nats://•••@h:4222"),
        ("nats://ann:secret@h:4222,ann:secret@i:4222/b", "nats://ann:•••@i:4222/b"),
        ("azure-blob://a.blob.core.windows.net/c?sv=1&sig=x", "azure-blob://a.blob.core.windows.net/c?•••"),
        (
            "azure-blob://devstoreaccount1:KEY@127.0.0.1:10000/c",
            "azure-blob://devstoreaccount1:•••@127.0.0.1:10000/c",
        ),
        ("https://ann:secret@hooks.example:8443/T0/secret?token=x", "https://hooks.example:8443"),
        ("sqlite:///a.db?key=secret", "sqlite:///a.db?•••"),
        ("sqlite://me:secret@h/a.db", "sqlite://•••"),
        ("postgresql+asyncpg://me:secret@db/shop", "postgresql+asyncpg://•••"),
    ],
)
def test_what_may_be_secret_is_masked(url: str, mask: str) -> None:
    assert mask_url(url) == mask


def test_what_a_driver_repeats_of_a_secret_is_taken_out_and_no_more() -> None:
    """The name of a misspelt parameter stays, unless it may be a part of the password before it."""
    text = 'unrecognized configuration parameter "ter2zzzz"'
    assert (
        scrub(text, "postgresql://db/x?password=hun&ter2zzzz=1")
        == 'unrecognized configuration parameter "•••"'
    )
    assert scrub(text, "postgresql://db/x?ter2zzzz=require") == text
    assert scrub("invalid HUNTER2!", "postgresql://me:%68unter2@db/x") == "invalid •••!"
    assert scrub("password authentication failed for user me", "postgresql://me:pas@db/x").startswith(
        "password auth"
    )


def test_a_port_of_more_digits_than_int_takes_is_masked() -> None:
    """The digits may be a password whose @ is missing, so no error may come of them."""
    assert "999" not in mask_url(f"redis://h:{'9' * 5000}/0")
