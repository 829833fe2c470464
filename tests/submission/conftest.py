"""Databases and doors for the tests of submission in the caller's own transaction."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.conftest import databases
from tests.submission.connections import DOORS, Door, PostgresWorld, SQLiteWorld, World, migrated

__all__ = ["databases"]


@pytest.fixture(scope="session")
def postgres_url(databases: Any) -> str:
    """A database with the schema, shared by the tests one after another."""
    if isinstance(databases, str):
        pytest.skip(f"postgres: {databases}")
    return migrated(asyncio.run(databases.create()))


def world_of(kind: str, request: pytest.FixtureRequest, folder: Path) -> World:
    """Return an empty world of a store."""
    if kind == "sqlite":
        return SQLiteWorld(folder / "shop.db")
    return PostgresWorld(request.getfixturevalue("postgres_url"))


@pytest.fixture(params=["sqlite", "postgres"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """An empty database of each store."""
    return world_of(request.param, request, tmp_path)


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest, tmp_path: Path) -> Door:
    """Each kind of connection."""
    make, kind = DOORS[request.param]
    return make(world_of(kind, request, tmp_path))
