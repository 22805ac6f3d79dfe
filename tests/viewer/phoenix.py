"""Arize Phoenix on ports of its own: started, asked for what it holds, and stopped by its id."""

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

HOST = "127.0.0.1"
PATIENCE = 180.0
"""Seconds until it must answer: its first start compiles what pip has installed."""
PAGE = 1_000


@dataclass(frozen=True)
class Phoenix:
    """A viewer that is up."""

    port: int

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}"

    def spans(self, project: str) -> list[dict[str, Any]]:
        """All it holds of a project; none where it has yet to hear of it."""
        found: list[dict[str, Any]] = []
        cursor = None
        while True:
            query = urlencode({"limit": PAGE, **({"cursor": cursor} if cursor else {})})
            status, page = _get(self.port, f"/v1/projects/{project}/spans?{query}")
            if status == http.client.NOT_FOUND:
                return []
            if status != http.client.OK:
                raise RuntimeError(f"the viewer answered {status}")
            found += page["data"]
            cursor = page["next_cursor"]
            if cursor is None:
                return found


@contextmanager
def phoenix(folder: Path) -> Generator[Phoenix]:
    """Phoenix with its data in this folder, until the block is left."""
    port, grpc = _free_ports(2)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PHOENIX_", "OTEL_"))}
    settings = {
        "PHOENIX_HOST": HOST,
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(grpc),
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_TELEMETRY_ENABLED": "false",
        "PHOENIX_DISABLE_AGENT_ASSISTANT": "true",
        "PHOENIX_ENABLE_MCP_SERVER": "false",
    }
    with (folder / "phoenix.log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "phoenix.server.main", "serve"], env=kept | settings, stdout=log, stderr=log
        )
        try:
            _wait(server, port)
            yield Phoenix(port)
        finally:
            server.terminate()
            try:
                server.wait(15)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _wait(server: "subprocess.Popen[bytes]", port: int) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if server.poll() is not None:
            raise RuntimeError(f"the viewer ended with {server.returncode} before it was up")
        try:
            if _get(port, "/v1/projects")[0] == http.client.OK:
                return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"the viewer was not up after {PATIENCE} s")


def _get(port: int, path: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(HOST, port, timeout=30)
    try:
        connection.request("GET", path, headers={"Accept": "application/json"})
        answer = connection.getresponse()
        body = answer.read()
        return answer.status, json.loads(body) if answer.status == http.client.OK else None
    finally:
        connection.close()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
