"""A pytest plugin (``-p tests.variants.pooled``): stores on PostgreSQL are opened through a pooler.

``BELAY_TEST_POOLER`` says where it listens, as ``host:port``. Databases are still made directly.
"""

import os
from urllib.parse import urlsplit, urlunsplit

import belay_drivers.postgres as driver
from belay_drivers.postgres import open as driver_open

open_straight = driver_open.open_postgres


def open_pooled(url, **given):
    """The stores, opened through the pooler."""
    parts = urlsplit(url)
    netloc = f"{parts.username}@{os.environ['BELAY_TEST_POOLER']}"
    return open_straight(urlunsplit(parts._replace(netloc=netloc)), **{"pooler": "transaction", **given})


def pytest_configure() -> None:
    driver.open_postgres = driver_open.open_postgres = open_pooled
