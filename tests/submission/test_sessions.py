"""Sessions of SQLAlchemy that work on several engines: the task goes into the transaction that the caller means, or is refused by name."""

import asyncio
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

import makegood as mg
from tests.actors.noop_apps import chain_app
from tests.submission.connections import PostgresWorld, World

_, CHAIN = chain_app(1)
SEVERAL = r"works on several engines \(.*\), each with a transaction of its own: pass the connection"


class Base(DeclarativeBase):
    """The application's own tables."""


class Order(Base):
    """In the store's database."""

    __tablename__ = "orders"
    id: Mapped[str] = mapped_column(primary_key=True)


class Log(Base):
    """Elsewhere."""

    __tablename__ = "log"
    id: Mapped[str] = mapped_column(primary_key=True)


class Routed(Session):
    """Chooses by a method of its own, as sessions with a leader and followers do."""

    writer: sa.Engine
    reader: sa.Engine

    def get_bind(self, mapper: Any = None, *, clause: Any = None, **_: Any) -> Any:
        """Write to one engine, read from another."""
        return self.writer if self._flushing else self.reader


@pytest.fixture
def here(world: World) -> sa.Engine:
    """An engine on the store's database."""
    driver = "postgresql+psycopg" if isinstance(world, PostgresWorld) else "sqlite+pysqlite"
    return sa.create_engine(f"{driver}://{world.place}", poolclass=sa.NullPool)


@pytest.fixture
def there(tmp_path: Path) -> sa.Engine:
    """An engine on another database."""
    engine = sa.create_engine(f"sqlite+pysqlite:///{tmp_path / 'log.db'}", poolclass=sa.NullPool)
    Base.metadata.create_all(engine)
    return engine


def committed(world: World, session: Any, *, connection: Any = None, add: bool = True) -> None:
    """Add an order, submit in the same session, and commit."""
    with mg.SyncClient(world.url) as client, closing(session):
        if add:
            session.add(Order(id="o"))
        client.submit(CHAIN, "a", connection=session if connection is None else connection(session))
        session.commit()


@pytest.mark.parametrize("from_scope", [False, True])
def test_one_engine_for_some_classes_is_the_one(world: World, here: sa.Engine, *, from_scope: bool) -> None:
    """Though the session as a whole is bound to none."""
    make = sessionmaker(binds={Order: here})
    committed(world, scoped_session(make) if from_scope else make())
    assert world.counts() == (1, 1, 1)


@pytest.mark.parametrize("add", [True, False])
@pytest.mark.parametrize(
    "make",
    [
        lambda here, there: Session(here, binds={Log: there}),
        lambda here, there: Session(there, binds={Order: here}),
        lambda here, there: Session(binds={Order: here, Log: there}),
        lambda here, _: Session(here, binds={Order: here.execution_options(isolation_level="SERIALIZABLE")}),
        lambda here, there: scoped_session(sessionmaker(here, binds={Log: there})),
    ],
    ids=["a class elsewhere", "a class here", "each class", "two engines of one database", "scoped"],
)
def test_several_engines_are_refused_by_name(
    world: World, here: sa.Engine, there: sa.Engine, make: Callable[..., Session], *, add: bool
) -> None:
    with pytest.raises(mg.TransactionError, match=SEVERAL) as error:
        committed(world, make(here, there), add=add)
    assert here.url.database is not None
    assert here.url.database in str(error.value)
    assert world.counts() == (0, 0, 0)


def test_the_connection_of_a_class_is_taken(world: World, here: sa.Engine, there: sa.Engine) -> None:
    """As the message says. The other engine's is refused as another database."""
    session = Session(there, binds={Order: here})
    committed(world, session, connection=lambda s: s.connection(bind_arguments={"mapper": Order}))
    assert world.counts() == (1, 1, 1)
    with pytest.raises(mg.TransactionError):
        committed(world, Session(there, binds={Order: here}), connection=lambda s: s.connection(), add=False)
    assert world.counts() == (1, 1, 1)


def test_a_session_that_chooses_by_itself(
    world: World, here: sa.Engine, there: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken while it chooses one engine, refused when its rows went to another one than it names."""
    monkeypatch.setattr(Routed, "writer", here, raising=False)
    monkeypatch.setattr(Routed, "reader", here, raising=False)
    committed(world, Routed())
    assert world.counts() == (1, 1, 1)
    world.rows("delete from orders")
    monkeypatch.setattr(Routed, "reader", there)
    with pytest.raises(mg.TransactionError, match=SEVERAL):
        committed(world, Routed())
    assert world.counts() == (0, 1, 1)


def test_an_asynchronous_session_of_several_engines_is_refused(world: World, there: sa.Engine) -> None:
    driver = "postgresql+asyncpg" if isinstance(world, PostgresWorld) else "sqlite+aiosqlite"

    async def call() -> None:
        engine = create_async_engine(f"{driver}://{world.place}", poolclass=sa.NullPool)
        async with mg.Client(world.url) as client:
            session = AsyncSession(binds={Order: engine})
            async with session, session.begin():
                await client.submit(CHAIN, "a", connection=session)
            session = AsyncSession(engine)
            session.sync_session.bind_mapper(Log, there)
            with pytest.raises(mg.TransactionError, match=SEVERAL):
                async with session, session.begin():
                    await client.submit(CHAIN, "b", connection=session)
        await engine.dispose()

    asyncio.run(call())
    assert world.counts() == (0, 1, 1)


def test_passwords_are_not_in_the_message(world: World, here: sa.Engine) -> None:
    other = sa.create_engine("postgresql+psycopg://shop:secret@127.0.0.1/other")
    with pytest.raises(mg.TransactionError, match=r"shop:\*\*\*@") as error:
        committed(world, Session(here, binds={Log: other}), add=False)
    assert "secret" not in str(error.value)
