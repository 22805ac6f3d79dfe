"""The migration plan: sets of numbered migrations, each in its own block of ids, and which are pending."""

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.metadata import entry_points
from importlib.resources import files
from types import MappingProxyType
from typing import Final

from belay_core.errors import MigrationRefused, SchemaMismatch
from belay_core.limits import MAX_SAFE_INTEGER
from belay_core.values.text import is_well_formed
from belay_drivers.sql.schema.script_statements import statements_of

COMMAND: Final = "belay migrate"
BLOCK: Final = 1_000
"""Number of ids of a set, from its offset on."""
GROUP: Final = "belay.migration_sets"
"""The entry point group of other packages' sets, by the scheme of the database's URL."""
_FILE: Final = re.compile(r"(\d{4}_[a-z0-9_]+)\.sql")
_KEY: Final = re.compile(r"(\d{1,4})_(.+)", re.ASCII)
_NAMESPACE: Final = re.compile(r"([a-z][a-z0-9-]*)?", re.ASCII)
_CONTRACT: Final = re.compile(r"contract_(?:(\d{4})_.+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class MigrationSet:
    """The migrations of one package for one kind of database.

    ``migrations`` maps ``NNNN_name`` to SQL; NNNN counts within the set, from 0 to 999, and ``id_offset``, a multiple
    of 1,000, moves it into the set's block. The ledger records ``<namespace>_<name>``. Only belay's own set, in block
    0, has an empty namespace. ``previous_names`` maps a key to the names its migration was recorded under before.
    The mappings are copied.
    """

    namespace: str
    id_offset: int
    migrations: Mapping[str, str]
    previous_names: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])

    def __post_init__(self) -> None:
        object.__setattr__(self, "migrations", MappingProxyType(dict(self.migrations)))
        object.__setattr__(self, "previous_names", MappingProxyType(dict(self.previous_names)))

    @property
    def prefix(self) -> str:
        """The prefix of the recorded names."""
        return f"{self.namespace}_" if self.namespace else ""


@dataclass(frozen=True, slots=True)
class Migration:
    """One migration, with the id and name under which the ledger records it."""

    id: int
    name: str
    sql: str
    prefix: str = ""
    former: frozenset[str] = frozenset()

    @property
    def block(self) -> int:
        """The first id of its block."""
        return block_of(self.id)

    @property
    def checksum(self) -> str:
        """SHA-256 of the SQL, to detect a change after it was applied."""
        return sha256(self.sql.encode()).hexdigest()

    @property
    def statements(self) -> list[str]:
        """The statements one by one."""
        return statements_of(self.sql)

    def is_recorded_as(self, name: str, checksum: str) -> bool:
        """Whether a ledger entry records this migration."""
        return checksum == self.checksum and (name == self.name or name in self.former)


Recorded = Mapping[int, tuple[str, str]]
"""The ledger: id to name and checksum."""


def own_set(package: str) -> MigrationSet:
    """Belay's own migrations for a database: the SQL files of the driver's package."""
    found = {
        match[1]: entry.read_text(encoding="utf-8")
        for entry in files(package).joinpath("migrations").iterdir()
        if (match := _FILE.fullmatch(entry.name))
    }
    return MigrationSet("", 0, found)


def installed_sets(scheme: str) -> list[MigrationSet]:
    """The sets that other installed packages have registered for this kind of database."""
    found: list[MigrationSet] = []
    for point in entry_points(group=GROUP, name=scheme):
        loaded = point.load()
        if not isinstance(loaded, MigrationSet):
            raise MigrationRefused("key", f"the entry point {point.value} is no MigrationSet")
        found.append(loaded)
    return found


def planned(sets: Sequence[MigrationSet]) -> tuple[Migration, ...]:
    """All migrations of these sets, in the order of their ids. Raises ``MigrationRefused``."""
    _check_unique([given.namespace for given in sets], "namespace")
    _check_unique([given.id_offset for given in sets], "offset")
    steps: dict[int, Migration] = {}
    for given in sets:
        _check_block(given)
        for key, sql in given.migrations.items():
            step = _migration(given, key, sql)
            if step.id in steps:
                raise MigrationRefused("key", f"two migrations of set {given.namespace!r} have the id {step.id}")
            steps[step.id] = step
    for step in steps.values():
        _check_contract(step, steps)
    return tuple(steps[number] for number in sorted(steps))


def pending(steps: Sequence[Migration], recorded: Recorded) -> list[Migration]:
    """Migrations that are not applied yet, in order.

    Raises ``SchemaMismatch`` if the ledger does not fit these migrations, and ``MigrationRefused`` if a new block
    is below an applied one.
    """
    _check_recorded(steps, recorded)
    missing = [step for step in steps if step.id not in recorded]
    known = {step.id for step in steps}
    highest = max(recorded, default=-1)
    for step in missing:
        block = [number for number in recorded if block_of(number) == step.block]
        if not block and step.id <= highest:
            raise MigrationRefused("order", f"migration {step.id} begins a block below {highest}, which is applied")
        unknown = [number for number in block if number not in known]
        if unknown:
            raise SchemaMismatch(
                "altered", f"migration {step.id} is not applied, but {unknown[0]} is, which this version does not know"
            )
        if step.id < max(block, default=-1):
            raise SchemaMismatch(
                "altered", f"the database lacks migration {step.id} below others; `{COMMAND}` never fills holes"
            )
    return missing


def block_of(number: int) -> int:
    """The first id of the block of an id."""
    return number - number % BLOCK


def _check_recorded(steps: Sequence[Migration], recorded: Recorded) -> None:
    known = {step.id: step for step in steps}
    prefixes = {step.block: step.prefix for step in steps}
    for number, (name, checksum) in sorted(recorded.items()):
        if not 0 <= number <= MAX_SAFE_INTEGER:
            raise SchemaMismatch("altered", f"the ledger of migrations holds an id that is none: {number}")
        block = block_of(number)
        step = known.get(number)
        if step is not None and not step.is_recorded_as(name, checksum):
            raise SchemaMismatch(
                "altered",
                f"migration {number} was applied in another form than this version of belay has; "
                f"`{COMMAND}` does not repair that",
            )
        if step is None and block in prefixes:
            _check_bearable(
                number, name.removeprefix(prefixes[block]), [one for one in known if block_of(one) == block]
            )


def _check_bearable(number: int, name: str, known: Sequence[int]) -> None:
    """Refuse a migration of a newer release that removed what this code needs (decision record 10)."""
    match = _CONTRACT.match(name)
    if match and (match[1] is None or block_of(number) + int(match[1]) > max(known)):
        raise SchemaMismatch(
            "newer",
            f"the database has migration {number}, which this version of belay cannot work with; "
            f"install the version that ran `{COMMAND}`",
        )


def _check_unique(values: Sequence[object], what: "str") -> None:
    for value in values:
        if values.count(value) > 1:
            raise MigrationRefused(
                "namespace" if what == "namespace" else "offset", f"two sets have the {what} {value!r}"
            )


def _check_block(given: MigrationSet) -> None:
    # Sets come from other packages, which may be untyped.
    if not isinstance(given.namespace, str) or not _NAMESPACE.fullmatch(given.namespace):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise MigrationRefused(
            "namespace", f"the namespace {given.namespace!r} is not lower-case letters, digits, minus"
        )
    offset = given.id_offset
    if type(offset) is not int or not 0 <= offset <= MAX_SAFE_INTEGER - BLOCK or offset % BLOCK:
        raise MigrationRefused("offset", f"the offset {offset!r} of set {given.namespace!r} is no multiple of {BLOCK}")
    if (given.namespace == "") != (offset == 0):
        raise MigrationRefused("offset", "block 0 is belay's own, and its set alone has no namespace")
    for key, names in given.previous_names.items():
        listed = _is_list(names) and all(isinstance(name, str) and name for name in names)  # pyright: ignore[reportUnnecessaryIsInstance]
        if key not in given.migrations or not listed:
            raise MigrationRefused("previous_names", f"previous_names of {key!r} are no list of names of a migration")


def _migration(given: MigrationSet, key: str, sql: str) -> Migration:
    # A name is part of a comment of the printed script: it must not contain a line break.
    match = _KEY.fullmatch(key) if isinstance(key, str) and key.isprintable() else None  # pyright: ignore[reportUnnecessaryIsInstance]
    if match is None or int(match[1]) >= BLOCK or not _is_sql(sql):
        raise MigrationRefused("key", f"{key!r} of set {given.namespace!r} is no NNNN_name, 0 to 999, with its SQL")
    former = frozenset(given.previous_names.get(key, ()))
    return Migration(given.id_offset + int(match[1]), f"{given.prefix}{match[2]}", sql, given.prefix, former)


def _is_sql(text: object) -> bool:
    return isinstance(text, str) and "\0" not in text and is_well_formed(text)


def _is_list(names: object) -> bool:
    return isinstance(names, (Sequence, AbstractSet)) and not isinstance(names, (str, bytes))


def _check_contract(step: Migration, steps: Mapping[int, Migration]) -> None:
    match = _CONTRACT.match(step.name.removeprefix(step.prefix))
    if match is None:
        return
    needed = None if match[1] is None else step.block + int(match[1])
    if needed is None or needed > step.id or needed not in steps:
        raise MigrationRefused("contract", f"{step.name!r} does not name the migration that code has to know for it")
