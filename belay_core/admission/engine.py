"""What the engine's store lets in from people and clients: texts a database can hold, numbers that last."""

from typing import Final

from belay_core.admission.numbers import is_safe
from belay_core.admission.text import is_durable, is_name, is_well_formed
from belay_core.commands import Cancel, Decide, Happened, Resolve, Start
from belay_core.errors import InvalidInput

MOST_URGENT: Final = 2**31 - 1
"""The largest priority; the smallest is its negative."""

_DURABLE: Final = "must be 1 to 1024 UTF-16 code units of well-formed text without NUL"
_NAME: Final = "must be well-formed text without NUL, 1 to 512 bytes of UTF-8"
_TEXT: Final = "must be well-formed text without NUL"
_MOMENT: Final = "must be a whole number of milliseconds from 0 to 2^53 - 1"


def start(command: Start) -> None:
    """Check a command; raises ``InvalidInput``, which names the parameter and the rule."""
    _durable("run_id", command.run_id)
    _name("workflow", command.workflow)
    _name("version", command.version)
    _text("input", command.input)
    if command.idempotency_key is not None:
        _name("idempotency_key", command.idempotency_key)
    if type(command.priority) is not int or abs(command.priority) > MOST_URGENT:
        raise InvalidInput("priority", "must be a whole number from -2147483647 to 2147483647")
    if command.run_at_ms is not None and not is_safe(command.run_at_ms):
        raise InvalidInput("run_at_ms", _MOMENT)
    _optional_text("trace", command.trace)


def decide(command: Decide) -> None:
    """Check a command; raises ``InvalidInput``, which names the parameter and the rule."""
    _durable("approval_id", command.approval_id)
    if command.decision not in {"approved", "rejected"}:
        raise InvalidInput("decision", "must be approved or rejected")
    _text("digest", command.digest)
    _durable("by", command.by)
    for name in ("reason", "edited", "edited_digest"):
        _optional_text(name, getattr(command, name))


def cancel(command: Cancel) -> None:
    """Check a command; raises ``InvalidInput``, which names the parameter and the rule."""
    _durable("run_id", command.run_id)
    if command.by is not None:
        _durable("by", command.by)


def resolve(command: Resolve) -> None:
    """Check a command; raises ``InvalidInput``, which names the parameter and the rule."""
    _durable("run_id", command.run_id)
    _durable("by", command.by)
    _optional_text("step_key", command.step_key)
    if isinstance(command.resolution, Happened):
        _text("outcome", command.resolution.outcome)


def _durable(parameter: str, value: object) -> None:
    if not is_durable(value):
        raise InvalidInput(parameter, _DURABLE)


def _name(parameter: str, value: object) -> None:
    if not is_name(value):
        raise InvalidInput(parameter, _NAME)


def _text(parameter: str, value: object) -> None:
    if type(value) is not str or "\0" in value or not is_well_formed(value):
        raise InvalidInput(parameter, _TEXT)


def _optional_text(parameter: str, value: object) -> None:
    if value is not None:
        _text(parameter, value)
