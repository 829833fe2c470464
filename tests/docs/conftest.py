"""What the tests of pages share: the shop of the command line, databases, servers that leases are kept on."""

from tests.conformance.conftest import databases
from tests.doors.conftest import open_shop, shop, shop_on_postgres
from tests.election.conftest import database, lease_server, own_server, servers, shared_database
from tests.submission.conftest import postgres_url, world

__all__ = [
    "database",
    "databases",
    "lease_server",
    "open_shop",
    "own_server",
    "postgres_url",
    "servers",
    "shared_database",
    "shop",
    "shop_on_postgres",
    "world",
]
