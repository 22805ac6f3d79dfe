"""Connections to PostgreSQL: direct ones with session settings, or through a pooler without sessions."""

import socket
import ssl
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, TypeVar

from sqlalchemy import URL, Connection, NullPool, event, make_url, text
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from belay_core import limits
from belay_core.errors import DatabaseError, DatabaseUnreachable, InvalidInput
from belay_drivers.postgres.dialect import READ_ONLY
from belay_drivers.sql.connection.dialect import causes_of

T = TypeVar("T")

Pooler: TypeAlias = Literal["transaction"]

POOL_SIZE: Final = 10
CONNECT_TIMEOUT: Final = 5.0
POOL_TIMEOUT: Final = 5.0
"""Seconds an operation waits for a connection if all are in use; then it fails as ``busy`` and is retried."""
GRACE: Final = 0.5
"""Seconds the driver waits beyond the database's own time limit, whose error is more exact."""

_NAME: Final = {"application_name": "belay"}
_SETTINGS: Final = {
    # Without statistics, as on a new database, the planner would collect and sort all ready runs to acquire a few:
    # 89 ms over 110,000 of them, against 0.3 by walking the index.
    "enable_bitmapscan": "off",
    "idle_in_transaction_session_timeout": "60000",
    "jit": "off",
    "statement_timeout": str(int(limits.STATEMENT_TIMEOUT * 1000)),
}
_FLUSHING: Final = {
    # The plan of a flush is the same for any number of rows: each is found by its key.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}
_REFUSALS: Final = {
    "3D000": "the database does not exist",
    "28000": "the server refuses this user, or wants TLS",
    "28P01": "the password is wrong",
    "42501": "the user may not connect to it",
    "53300": "the server has no connection left",
    "57P03": "the server is starting up or shutting down",
}
_UNREACHED: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (socket.gaierror, "there is no such host"),
    (ssl.SSLError, "TLS failed"),
    (ConnectionRefusedError, "nothing accepts connections there"),
    (TimeoutError, f"no answer within {CONNECT_TIMEOUT:.0f} s"),
    (ConnectionError, "the connection was cut"),
    (OSError, "it cannot be reached"),
)
_TLS_ONLY: Final = ("require", "verify-ca", "verify-full")
_SSL_MODES: Final = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_QUERY: Final = frozenset(
    {"host", "krbsrvname", "passfile", "pooler", "port", "service", "ssl", "sslmode", "target_session_attrs"}
)
"""The parameters in the query of a URL: belay's own and those that the driver accepts as text."""
# A role or a database may have other defaults; the fences are written for this level.
_ISOLATION: Final = {"default_transaction_isolation": "read committed"}
# The driver switches `jit` itself to look up a type, and restores the value it found for the session, so that a value
# set for a transaction would stay.
_LOCAL_SETTINGS: Final = {**{name: value for name, value in _SETTINGS.items() if name != "jit"}, "jit_above_cost": "-1"}
_LOCALLY: Final = text(
    "SELECT " + ", ".join(f"set_config('{name}', '{value}', true)" for name, value in _LOCAL_SETTINGS.items())
)
# A prepared statement outlives its transaction, and the pooler gives the connection to another client by then. The
# unnamed one is replaced by the next.
_UNNAMED: Final[dict[str, Any]] = {
    "prepared_statement_cache_size": 0,
    "prepared_statement_name_func": lambda: "",
    "statement_cache_size": 0,
}


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a database, and the pooler in front of it, if any."""

    url: URL
    pooler: Pooler | None
    ssl: str | None

    def arguments(self, settings: dict[str, str]) -> dict[str, Any]:
        """The driver's connect arguments; a pooler accepts no settings."""
        ssl = {} if self.ssl is None else {"ssl": self.ssl}
        return {"timeout": CONNECT_TIMEOUT, **ssl, **(_UNNAMED if self.pooler else {"server_settings": settings})}


def address_of(url: str, pooler: str | None = None) -> Address:
    """The address in a URL, whose query may say ``sslmode``, as for libpq, and ``pooler``.

    Raises ``InvalidInput`` for a pooler that is not ``transaction``, and for parameters that the driver does not have.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        parsed = None
    if parsed is None:
        # Raised here, as the parser's error repeats the URL.
        raise InvalidInput("url", "must be postgresql://user@host:port/name")
    for name, value in parsed.query.items():
        if name not in _QUERY or not isinstance(value, str):
            raise InvalidInput("url", f"its query may say each of these once: {', '.join(sorted(_QUERY))}")
    chosen = parsed.query.get("pooler") if pooler is None else pooler
    if chosen not in (None, "transaction"):
        raise InvalidInput("pooler", "must be 'transaction', or left out for a direct connection or a session pooler")
    ssl = parsed.query.get("sslmode")
    if ssl is not None and ssl not in _SSL_MODES:
        raise InvalidInput("sslmode", f"must be one of {', '.join(_SSL_MODES)}")
    plain = parsed.set(drivername="postgresql+asyncpg").difference_update_query(["sslmode", "pooler"])
    return Address(plain, None if chosen is None else "transaction", ssl if isinstance(ssl, str) else None)


async def reached(opening: Awaitable[T], engine: AsyncEngine, address: Address) -> T:
    """Await the first use of a database. Raises ``DatabaseUnreachable`` where it cannot be connected to."""
    try:
        return await opening
    except DatabaseError as failure:
        if (why := await _why_not(engine, address)) is None:
            raise
        url = address.url
        where = f"{url.host or 'the local socket'}:{url.port or 5432}"
        error = DatabaseUnreachable(f"PostgreSQL database {url.database or '(of the user)'} at {where}: {why}")
        error.__cause__ = failure
    raise error


async def _why_not(engine: AsyncEngine, address: Address) -> str | None:
    """Why no connection can be made, in words that hold nothing of the URL; None where one can."""
    try:
        await (await engine.connect()).close()
    except Exception as error:  # noqa: BLE001  (drivers raise of many kinds while they connect)
        for link in causes_of(error):
            sqlstate = getattr(link, "sqlstate", None)
            if isinstance(sqlstate, str):
                return f"{_REFUSALS.get(sqlstate, 'the server refused the connection')} ({sqlstate})"
            if type(link) is ConnectionError and address.ssl in _TLS_ONLY:
                return "the server refuses TLS"
            for kind, words in _UNREACHED:
                if isinstance(link, kind):
                    return words
        return "no connection can be made"
    return None


def pooled_engine(address: Address) -> AsyncEngine:
    """An engine with a connection pool."""
    engine = create_async_engine(
        address.url,
        hide_parameters=True,
        isolation_level="READ COMMITTED",
        pool_size=POOL_SIZE,
        max_overflow=0,
        pool_timeout=POOL_TIMEOUT,
        # Every use ends its own transaction; a reset would be an unnecessary round trip.
        pool_reset_on_return=None,
        connect_args=_bounded(address, _NAME | _SETTINGS | _ISOLATION),
    )
    event.listen(engine.sync_engine, "handle_error", _drop_read_only)
    if address.pooler:
        event.listen(engine.sync_engine, "begin", _set_locally)
    return engine


def dedicated_engine(address: Address) -> AsyncEngine:
    """An engine for one dedicated connection, as for flushes; each statement commits by itself."""
    return create_async_engine(
        address.url,
        hide_parameters=True,
        poolclass=NullPool,
        isolation_level="AUTOCOMMIT",
        connect_args=_bounded(address, _NAME | _SETTINGS | _ISOLATION | _FLUSHING),
    )


def single_use_engine(address: Address) -> AsyncEngine:
    """An engine for one transaction without a time limit."""
    return create_async_engine(
        address.url,
        hide_parameters=True,
        poolclass=NullPool,
        isolation_level="READ COMMITTED",
        connect_args=address.arguments(_NAME),
    )


def _bounded(address: Address, settings: dict[str, str]) -> dict[str, Any]:
    """The driver's connect arguments with time limits of statements."""
    return {**address.arguments(settings), "command_timeout": limits.STATEMENT_TIMEOUT + GRACE}


def _drop_read_only(context: ExceptionContext) -> None:
    """Drop all sessions of the pool where one takes no writes: the server is no primary any more."""
    if any(getattr(link, "sqlstate", None) == READ_ONLY for link in causes_of(context.original_exception)):
        context.is_disconnect = True


def _set_locally(connection: Connection) -> None:
    connection.execute(_LOCALLY)
