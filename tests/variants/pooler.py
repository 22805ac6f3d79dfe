"""``python -m tests.variants.pooler``: the drivers' tests through pgbouncer, which shares three servers by transaction.

Ends with what pytest ended with. All it starts listens on the loopback address and goes with it.
"""

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from belay_testing.postgres_server import PostgresServer
from tests.variants.choosing import run_tests

SERVERS = 3
MISSING = "pgbouncer is not installed. On Debian and Ubuntu: apt-get install pgbouncer"
USUAL = ("-k", "postgres or pooler", "tests/variants/through_pooler.py", "tests/drivers")
UNFIT = (
    # Looks at settings of the session, which a pooler does not keep.
    "tests/drivers/test_opening.py::test_postgres_sessions_say_who_they_are_and_cannot_hang",
    # Says in the URL what it is opened with, over which this puts a word of its own.
    "tests/drivers/test_opening.py::test_a_pooler_is_one_by_transaction",
    # Opens stores beside the pooler, and none behind it listens.
    "tests/drivers/test_notifications.py",
    # Looks for a word in what is sent, which the settings of a transaction have in them.
    "tests/drivers/test_conformance.py::TestPostgres::test_a_request_costs_the_same_whatever_the_length_of_the_lineage",
)
CONFIGURATION = """[databases]
* = host={host} port={port} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {servers}
max_client_conn = 500
server_idle_timeout = 5
log_connections = 0
log_disconnections = 0
logfile = {folder}/log
"""


def main(arguments: list[str]) -> int:
    """Run the tests; what is given goes to pytest."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin:/opt/homebrew/bin")
    if program is None:
        sys.stderr.write(f"{MISSING}\n")
        return 1
    with PostgresServer() as server, pooler(program, server.url) as address:
        environment = os.environ | {"BELAY_TEST_POSTGRES_URL": server.url, "BELAY_TEST_POOLER": address}
        left_out = [f"--deselect={name}" for name in UNFIT]
        return run_tests(["-p", "tests.variants.pooled", *left_out, *arguments], USUAL, environment)


@contextlib.contextmanager
def pooler(program: str, url: str) -> Iterator[str]:
    """pgbouncer before a server, as ``host:port``."""
    parts = urlsplit(url)
    with socket.socket() as probe, tempfile.TemporaryDirectory() as folder:
        probe.bind(("127.0.0.1", 0))
        listen = probe.getsockname()[1]
        probe.close()
        file = Path(folder, "pgbouncer.ini")
        file.write_text(
            CONFIGURATION.format(
                host=parts.hostname, port=parts.port, user=parts.username, listen=listen, servers=SERVERS, folder=folder
            )
        )
        user = None
        if os.geteuid() == 0:
            # It does not run as root.
            user = pwd.getpwnam("nobody").pw_uid
            os.chown(folder, user, -1)
            file.chmod(0o644)
        process = subprocess.Popen([program, "-q", str(file)], user=user, cwd=folder)
        try:
            wait_for(listen, process)
            yield f"127.0.0.1:{listen}"
        finally:
            process.terminate()
            process.wait(10)


def wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    """Until somebody listens there. Raises ``RuntimeError`` where the process ended instead."""
    for _ in range(100):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise RuntimeError("pgbouncer did not start")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
