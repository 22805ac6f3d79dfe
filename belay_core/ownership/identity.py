"""Which process this is, and proof that another one on the same host is gone (kernel 7).

A host name and a process id are no identity: every container has a process 1, and ids are used again. So a host is
a machine, one boot of it and one namespace of process ids, and a process is its id and the moment it started.
"""

import hashlib
import os
import platform
from dataclasses import dataclass
from pathlib import Path

from belay_core.ids import IdSource
from belay_core.records.owner import OwnerId

_UNKNOWN_START = "0"
_STATE_FIELD = 0
_START_FIELD = 19
_DEAD_STATES = frozenset({"Z", "X", "x"})


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """This process: its host, its id, and its start in the kernel's own ticks (``0`` where that is not known)."""

    host_id: str
    pid: int
    start: str

    def owner(self, ids: IdSource) -> OwnerId:
        """A fresh owner: the nonce begins with the start of the process and is never used twice."""
        return OwnerId(self.host_id, self.pid, f"{self.start}-{ids.nonce()}")


def this_process(ids: IdSource) -> ProcessIdentity:
    """The identity of the running process; never shared with a fork, so ask again after one."""
    pid = os.getpid()
    found = _state_and_start(pid)
    return ProcessIdentity(_host_id(ids), pid, _UNKNOWN_START if found is None else found[1])


def is_gone(owner: OwnerId, observer: ProcessIdentity) -> bool:
    """Whether it is proven that the owner's process has ended; False wherever there is any doubt."""
    start = owner.nonce.partition("-")[0]
    if owner.host_id != observer.host_id or _UNKNOWN_START in {observer.start, start}:
        return False
    found = _state_and_start(owner.pid)
    return found is None or found[0] in _DEAD_STATES or found[1] != start


def _state_and_start(pid: int) -> tuple[str, str] | None:
    """State and start of a process on Linux; None where there is no such process, or no such file system."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (OSError, ValueError):
        return None
    fields = text.rpartition(")")[2].split()
    return fields[_STATE_FIELD], fields[_START_FIELD]


def _host_id(ids: IdSource) -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        # Without these no other process can be told from a namesake, so nobody shares a host with this one.
        return f"{platform.node()}/{ids.nonce()}"
    parts = f"{_machine()}|{boot}|{namespace}"
    return f"{platform.node()}/{hashlib.sha256(parts.encode()).hexdigest()[:16]}"


def _machine() -> str:
    try:
        return Path("/etc/machine-id").read_text().strip()
    except OSError:
        return platform.node()
