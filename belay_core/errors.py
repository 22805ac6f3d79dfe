"""Errors. What a caller must plan for is an outcome that an operation returns, never one of these.

```text
BelayError
├─ StoreError(code, method, detail, cause)
│  ├─ RunStoreError       invalid_run · not_found_row · constraint · decode_failed · persistence_failed
│  ├─ AttemptStoreError   invalid_attempt · constraint · decode_failed · persistence_failed · unknown
│  ├─ ApprovalStoreError  constraint · decode_failed · persistence_failed
│  ├─ WaitingStoreError · JournalError · ChangesError · RetentionError
│  │                      invalid_run · constraint · decode_failed · persistence_failed
│  └─ WriterError         constraint · persistence_failed · commit_unknown · inside · ended · unsupported
├─ DatabaseError(code)    busy · constraint · content · io · unsupported · unknown      (only ever a cause)
├─ StoresUnusable(state)  the stores were closed, or belong to another event loop or process
├─ SchemaMismatch(state)  the database has another schema than this code: migrate first
├─ MigrationRefused(reason) a set of migrations is declared wrongly, or comes too late
├─ DriverNotFound         no installed driver opens this kind of URL
├─ DatabaseUnreachable    the database cannot be opened: no such host, refused, no such database ..
├─ InvalidInput           a parameter breaks a rule; both are named, the value is not
├─ InvalidTransitionError an operator's command does not fit the state of the run
├─ DefinitionError        a workflow is written wrongly, or no longer fits what was recorded
├─ ValueRefused           a value cannot be stored as data
├─ RunNotFoundError       no such run
├─ TryAgain · Fail        raised by a step of yours: try it again, after this time; do not try it again
├─ RunFailed · RunCancelled      how a run ended, raised by ``result``
├─ ResultTimeout          the run has not ended within the time that ``result`` was given
└─ StepFailed · StepCancelled    how a step ended, raised where it was awaited
```
"""

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

RunStoreCode: TypeAlias = Literal["invalid_run", "not_found_row", "constraint", "decode_failed", "persistence_failed"]
"""What can go wrong in a run store."""
AttemptStoreCode: TypeAlias = Literal["invalid_attempt", "constraint", "decode_failed", "persistence_failed", "unknown"]
"""What can go wrong in an attempt store."""
ApprovalStoreCode: TypeAlias = Literal["constraint", "decode_failed", "persistence_failed"]
"""What can go wrong in an approval store."""
WaitingStoreCode: TypeAlias = Literal["invalid_run", "constraint", "decode_failed", "persistence_failed"]
"""What can go wrong in a waiting store."""
JournalCode: TypeAlias = Literal["invalid_run", "constraint", "decode_failed", "persistence_failed"]
"""What can go wrong in a journal."""
ChangesCode: TypeAlias = Literal["invalid_run", "constraint", "decode_failed", "persistence_failed"]
"""What can go wrong in a change feed."""
RetentionCode: TypeAlias = Literal["invalid_run", "constraint", "decode_failed", "persistence_failed"]
"""What can go wrong where runs are deleted."""
WriterCode: TypeAlias = Literal["constraint", "persistence_failed", "commit_unknown", "inside", "ended", "unsupported"]
"""What can go wrong in a write of several operations."""
DatabaseCode: TypeAlias = Literal["busy", "constraint", "content", "io", "unsupported", "unknown"]
"""What kind of failure a database reported."""
SchemaState: TypeAlias = Literal["empty", "foreign", "older", "newer", "altered"]
"""How a database differs from what this code needs."""
StoresState: TypeAlias = Literal["closed", "other_loop", "other_process", "replaced"]
"""Why stores cannot be used."""
MigrationRule: TypeAlias = Literal["namespace", "offset", "key", "contract", "previous_names", "order"]
"""The rule that a set of migrations breaks."""


class BelayError(Exception):
    """Everything belay raises."""


class DatabaseError(BelayError):
    """The kind of failure that the database reported; nothing of its text is kept.

    ``code`` is the kind, ``sqlstate`` PostgreSQL's five characters, if there are any.
    ``transient`` says that what failed did not happen and may succeed when it is sent again.
    """

    def __init__(self, code: DatabaseCode, sqlstate: str | None = None, *, transient: bool = False) -> None:
        super().__init__(code if sqlstate is None else f"{code} ({sqlstate})")
        self.code: DatabaseCode = code
        self.sqlstate = sqlstate
        self.transient = transient


class StoreError(BelayError):
    """A store operation that could not keep its promise.

    ``store`` and ``method`` name the operation, ``code`` the kind of defect, ``detail`` what was found, in
    fixed words; ``cause`` holds names and kinds, never values.
    """

    store = "Store"

    def __init__(self, code: str, method: str, detail: str, cause: Mapping[str, object] | None = None) -> None:
        super().__init__(f"{code}: {self.store}.{method}: {detail}")
        self.code = code
        self.method = method
        self.detail = detail
        self.cause = None if cause is None else MappingProxyType(dict(cause))


def refuses_content(error: StoreError) -> bool:
    """Whether the database refuses what was to be written for what it holds: sent again, it is refused again."""
    cause = None if error.cause is None else error.cause.get("cause")
    return isinstance(cause, DatabaseError) and cause.code == "content"


class RunStoreError(StoreError):
    """A defect met by RunStore."""

    store = "RunStore"


class AttemptStoreError(StoreError):
    """A defect met by AttemptStore."""

    store = "AttemptStore"


class ApprovalStoreError(StoreError):
    """A defect met by ApprovalStore."""

    store = "ApprovalStore"


class WaitingStoreError(StoreError):
    """A defect met by WaitingStore."""

    store = "WaitingStore"


class JournalError(StoreError):
    """A defect met by Journal."""

    store = "Journal"


class ChangesError(StoreError):
    """A defect met by Changes."""

    store = "Changes"


class RetentionError(StoreError):
    """A defect met by Retention."""

    store = "Retention"


class WriterError(StoreError):
    """A write of several operations that could not keep its promise, or was used where it must not be."""

    store = "Writer"


class StoreAbsent(BelayError):
    """These stores lack one that is needed; the message names it."""


class StoresUnusable(BelayError):
    """These stores, or a client, handle or worker over them, cannot be used here; nothing was read or written.

    ``state`` is ``closed`` (the block that opened them was left), ``other_loop`` (another event loop opened them),
    ``other_process`` (they were opened before a fork) or ``replaced`` (the SQLite file was deleted, or another one has
    its name).
    """

    def __init__(self, state: StoresState) -> None:
        super().__init__(_REMEDIES[state])
        self.state: StoresState = state


_REMEDIES: Final[Mapping[StoresState, str]] = {
    "closed": "stores: were closed; open them again, and make clients, handles and workers from the new ones",
    "other_loop": "stores: belong to another event loop; open others in this one, or call these in their own loop, "
    "such as by asyncio.run_coroutine_threadsafe",
    "other_process": "stores: were opened before a fork; open others in this process, and make clients from those",
    "replaced": "stores: their file was deleted or replaced; put it back, and open stores again",
}


class SchemaMismatch(BelayError):
    """The database's schema is not one this code can work on; the message names the command to run.

    ``state`` is ``empty`` (no tables), ``foreign`` (no belay schema, but other tables), ``older``
    (migrations are missing), ``newer`` (a migration took away what this code needs) or ``altered`` (it holds what no
    release left behind).
    """

    def __init__(self, state: SchemaState, message: str) -> None:
        super().__init__(message)
        self.state: SchemaState = state


class MigrationRefused(BelayError):
    """A set of migrations breaks a rule, which ``reason`` names; nothing was applied."""

    def __init__(self, reason: MigrationRule, message: str) -> None:
        super().__init__(message)
        self.reason: MigrationRule = reason


class DriverNotFound(BelayError):
    """No installed driver opens URLs of this scheme."""


class DatabaseUnreachable(BelayError):
    """The database cannot be opened; the message says which and why, and holds no user and no password."""


class InvalidInput(BelayError):
    """A parameter breaks a rule: ``parameter`` names the one, ``rule`` the other."""

    def __init__(self, parameter: str, rule: str) -> None:
        super().__init__(f"{parameter}: {rule}")
        self.parameter = parameter
        self.rule = rule


class InvalidTransitionError(BelayError):
    """A command does not fit the state of the run."""


class DefinitionError(BelayError):
    """A workflow is written in a way that cannot be executed durably."""


class ValueRefused(BelayError):
    """A value cannot be stored and read back equal."""


class TryAgain(BelayError):
    """Raised by a step: it failed, and is to be tried again, ``after`` this time if that is given.

    It counts as one of its ``retries``; where they are used up, the step has failed with the given reason. Raises
    ``InvalidInput`` for a time that is no ``timedelta`` or is negative.
    """

    def __init__(self, reason: str = "", *, after: timedelta | None = None) -> None:
        super().__init__(reason)
        self.after = _time_to_wait(after)


def _time_to_wait(after: object) -> timedelta | None:
    if after is None or (isinstance(after, timedelta) and after >= timedelta(0)):
        return after
    raise InvalidInput("after", "must be a timedelta that is not negative")


class Fail(BelayError):
    """Raised by a step: it failed for this reason, and is not tried again, whatever its ``retries`` are."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)


class RunNotFoundError(BelayError):
    """There is no run with this id."""


class RunFailed(BelayError):
    """The run ``run_id`` failed; ``type`` and ``message`` are those of its error."""

    def __init__(self, run_id: str, error_type: str, message: str) -> None:
        super().__init__(f"run {run_id} failed: {error_type}: {message}")
        self.run_id = run_id
        self.type = error_type
        self.message = message


class RunCancelled(BelayError):
    """The run ``run_id`` was cancelled."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id} was cancelled")
        self.run_id = run_id


class ResultTimeout(BelayError, TimeoutError):
    """The run ``run_id`` has not ended within the time of the wait; ``state`` is a status or what it waits for."""

    def __init__(self, run_id: str, state: str) -> None:
        super().__init__(f"run {run_id} has not ended yet; its state is {state}")
        self.run_id = run_id
        self.state = state


class StepFailed(BelayError):
    """A step failed for good; the same fresh and resumed, whatever exception its body raised.

    ``step`` is its name, ``step_key`` that of the call; ``type`` and ``message`` are those of the exception.
    """

    def __init__(self, step: str, error_type: str, message: str, *, step_key: str | None = None) -> None:
        super().__init__(f"step {step} failed: {error_type}: {message}")
        self.step = step
        self.step_key = step_key
        self.type = error_type
        self.message = message
