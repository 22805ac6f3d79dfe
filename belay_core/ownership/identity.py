"""The identity of this process, and proof that another one on the same host is dead (kernel 7).

A host name and a process id are no identity: every container has a process 1, and ids are used again. So a host is
a machine, one boot of it and one namespace of process ids, and a process is its id and the moment it started. Copies
of a running virtual machine share all of that: give each a host id of its own, or rely on the lease.
"""

import hashlib
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

from belay_core.ids import IdSource
from belay_core.records.owner import OwnerId
from belay_core.values.numbers import is_safe

_UNKNOWN_START = "0"
# Indexes in a stat line, counted from the field after the name of the program.
_STATE_FIELD = 0
_THREADS_FIELD = 17
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
    seen = _process_status(pid) if _sees_own_namespace(pid) else None
    return ProcessIdentity(_host_id(ids), pid, _UNKNOWN_START if seen is None else seen.start)


def is_gone(owner: OwnerId, observer: ProcessIdentity) -> bool:
    """Whether it is proven that the owner's process has ended; False wherever there is any doubt."""
    start = _start_in(owner.nonce)
    if owner.host_id != observer.host_id or observer.start == _UNKNOWN_START or start is None:
        return False
    seen = _process_status(owner.pid)
    if seen is None:
        # A process of another user may be hidden from this one; os.kill still reports it.
        return not may_exist(owner.pid)
    return seen.start != start or seen.has_ended


def may_exist(pid: int) -> bool:
    """Whether a process with this id may exist on this host: everything but a certain no is a yes (8.3).

    On Windows every id is a yes: the call used here would send a Ctrl-C there.
    """
    if sys.platform == "win32" or not is_safe(pid) or pid == 0:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except Exception:  # noqa: BLE001  (no failure is a proof of death)
        return True
    return True


@dataclass(frozen=True, slots=True)
class _ProcessStatus:
    """The state of a process by Linux's ``/proc``."""

    start: str
    state: str
    threads: int

    @property
    def has_ended(self) -> bool:
        """Whether no thread of it runs any more; the first thread of a process may end before the others."""
        return self.state in _DEAD_STATES and self.threads <= 1


def _process_status(pid: int) -> _ProcessStatus | None:
    """The state of a process; None if it is not shown, or without ``/proc``."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (OSError, ValueError):
        return None
    fields = text.rpartition(")")[2].split()
    return _ProcessStatus(fields[_START_FIELD], fields[_STATE_FIELD], int(fields[_THREADS_FIELD]))


def _sees_own_namespace(pid: int) -> bool:
    """Whether the ids under ``/proc`` are those of this process's namespace, and not of the one around it."""
    try:
        return str(Path("/proc/self").readlink()) == str(pid)
    except OSError:
        return False


def _start_in(nonce: str) -> str | None:
    """The start that ``ProcessIdentity.owner`` put into a nonce; None for any other nonce."""
    start, dash, rest = nonce.partition("-")
    known = dash and "-" not in rest and start.isascii() and start.isdecimal() and start != _UNKNOWN_START
    return start if known else None


def _host_id(ids: IdSource) -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        # Without these a process id is ambiguous, so no other process shares a host with this one.
        return f"{platform.node()}/{ids.nonce()}"
    parts = f"{_machine()}|{boot}|{namespace}|{_time_namespace()}"
    return f"{platform.node()}/{hashlib.sha256(parts.encode()).hexdigest()[:16]}"


def _time_namespace() -> str:
    """The time namespace: the start of one process reads differently in different ones."""
    try:
        return str(Path("/proc/self/ns/time").readlink())
    except OSError:
        return ""


def _machine() -> str:
    try:
        return Path("/etc/machine-id").read_text().strip()
    except OSError:
        return platform.node()
