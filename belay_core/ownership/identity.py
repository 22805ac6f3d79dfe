"""Which process this is, and proof that another one on the same host is gone (kernel 7).

A host name and a process id are no identity: every container has a process 1, and ids are used again. So a host is
a machine, one boot of it and one namespace of process ids, and a process is its id and the moment it started. Copies
of a running virtual machine share all of that: give each of them a host id of its own, or let the lease decide.
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
# Places in a stat line, counted from the field behind the name of the program.
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
    seen = _seen(pid) if _sees_own_namespace(pid) else None
    return ProcessIdentity(_host_id(ids), pid, _UNKNOWN_START if seen is None else seen.start)


def is_gone(owner: OwnerId, observer: ProcessIdentity) -> bool:
    """Whether it is proven that the owner's process has ended; False wherever there is any doubt."""
    start = _start_in(owner.nonce)
    if owner.host_id != observer.host_id or observer.start == _UNKNOWN_START or start is None:
        return False
    seen = _seen(owner.pid)
    if seen is None:
        # A process of another user may be hidden from this one; the kernel still answers for it.
        return not may_exist(owner.pid)
    return seen.start != start or seen.has_ended


def may_exist(pid: int) -> bool:
    """Whether there may be a process with this id on this host: everything but a plain no is a yes (8.3).

    Windows answers yes to every id: what asks here would send a Ctrl-C there.
    """
    if sys.platform == "win32" or not is_safe(pid) or pid == 0:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except Exception:  # noqa: BLE001  (whatever the reason, it is no proof of death)
        return True
    return True


@dataclass(frozen=True, slots=True)
class _Seen:
    """What Linux shows of a process."""

    start: str
    state: str
    threads: int

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it runs any more; a process whose first thread has ended may go on in the others."""
        return self.state in _DEAD_STATES and self.threads <= 1


def _seen(pid: int) -> _Seen | None:
    """How a process stands; None where nothing is shown of it, or there is no such file system."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (OSError, ValueError):
        return None
    fields = text.rpartition(")")[2].split()
    return _Seen(fields[_START_FIELD], fields[_STATE_FIELD], int(fields[_THREADS_FIELD]))


def _sees_own_namespace(pid: int) -> bool:
    """Whether the ids under ``/proc`` are those of this process's namespace, and not of the one around it."""
    try:
        return str(Path("/proc/self").readlink()) == str(pid)
    except OSError:
        return False


def _start_in(nonce: str) -> str | None:
    """The start that ``ProcessIdentity.owner`` put into a nonce; None where the nonce is of another make."""
    start, dash, rest = nonce.partition("-")
    known = dash and "-" not in rest and start.isascii() and start.isdecimal() and start != _UNKNOWN_START
    return start if known else None


def _host_id(ids: IdSource) -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        # Without these no other process can be told from a namesake, so nobody shares a host with this one.
        return f"{platform.node()}/{ids.nonce()}"
    parts = f"{_machine()}|{boot}|{namespace}|{_time_namespace()}"
    return f"{platform.node()}/{hashlib.sha256(parts.encode()).hexdigest()[:16]}"


def _time_namespace() -> str:
    """Whose time starts are told in; the same process seems to have started at another time from another one."""
    try:
        return str(Path("/proc/self/ns/time").readlink())
    except OSError:
        return ""


def _machine() -> str:
    try:
        return Path("/etc/machine-id").read_text().strip()
    except OSError:
        return platform.node()
