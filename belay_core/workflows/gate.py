"""Gates of the class form: a method that returns the subject, and the rules of the gate."""

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Generic, Literal, ParamSpec, Protocol, Self, TypeAlias, TypeVar, overload

from belay_core.errors import DefinitionError
from belay_core.workflows import functions
from belay_core.workflows.gate_answers import Approved, Lapsed, NotNeeded, Rejected
from belay_core.workflows.names import checked_name, with_options

P = ParamSpec("P")
S = TypeVar("S")
A = TypeVar("A")

_RULES = ("when", "lapse_after", "on_reject", "name")

GateAnswer: TypeAlias = Approved[S] | NotNeeded[S]
"""The answers that a later step may get: a rejection or a lapse has failed the run."""
AnyGateAnswer: TypeAlias = Approved[S] | NotNeeded[S] | Rejected | Lapsed
"""The same with ``on_reject="continue"``."""


class Gate(Generic[P, A]):
    """A step without a body: it asks a person for a decision, if one is needed, and waits for it."""

    def __init__(
        self,
        fn: Callable[P, object],
        *,
        when: Callable[[Any], bool] | None = None,
        lapse_after: timedelta | None = None,
        on_reject: Literal["fail", "continue"] = "fail",
        name: str | None = None,
        options: dict[str, object] | None = None,
    ) -> None:
        if when is not None and not callable(when):
            raise DefinitionError("when: must be something that can be called with the subject")
        if on_reject not in {"fail", "continue"}:
            raise DefinitionError('on_reject: must be "fail" or "continue"')
        if options and "kind" in options:
            raise DefinitionError("kind: a gate's kind is always gate")
        self.fn: Callable[P, Any] = fn
        self.name = checked_name("name", getattr(fn, "__name__", "") if name is None else name, key_part=True)
        functions.refuse_generator(f"gate {self.name}", fn)
        self.when = when
        self.lapse_after = lapse_after
        self.on_reject = on_reject
        self.kind = "gate"
        self.options = dict(options or {})

    @property
    def subject_annotation(self) -> Any:
        """The return annotation of the method, or None without one."""
        found = functions.annotation(f"gate {self.name}", self.fn, "return")
        return None if found is functions.MISSING else found

    def __set_name__(self, _owner: type, name: str) -> None:
        self.attribute = name

    def __get__(self, _instance: object, _owner: type | None = None) -> Self:
        return self


class GateDecorator(Protocol):
    """Turns a method into a gate that fails the run if it is not approved."""

    def __call__(self, fn: Callable[P, S], /) -> Gate[P, GateAnswer[S]]:
        """The method as a gate."""
        ...


class ContinuingGateDecorator(Protocol):
    """Turns a method into a gate after which the run continues whatever the answer."""

    def __call__(self, fn: Callable[P, S], /) -> Gate[P, AnyGateAnswer[S]]:
        """The method as a gate."""
        ...


@overload
def gate(fn: Callable[P, S], /) -> Gate[P, GateAnswer[S]]: ...
@overload
def gate(
    *,
    when: Callable[[Any], bool] | None = None,
    lapse_after: timedelta | None = None,
    on_reject: Literal["fail"] = "fail",
    name: str | None = None,
    **options: object,
) -> GateDecorator: ...
@overload
def gate(
    *,
    when: Callable[[Any], bool] | None = None,
    lapse_after: timedelta | None = None,
    on_reject: Literal["continue"],
    name: str | None = None,
    **options: object,
) -> ContinuingGateDecorator: ...
def gate(fn: Callable[..., Any] | None = None, /, **rules: Any) -> Any:
    """Declare a gate: the method returns the subject, ``when`` whether a decision is needed (by default always).

    A rejection or a lapse fails the run, unless ``on_reject="continue"``. Other keywords are kept as options, and
    change nothing. Raises ``DefinitionError`` for one that is a misspelt rule.
    """
    given = with_options("gate", rules, _RULES)
    if fn is not None:
        return _declared(given, fn)
    return functools.partial(_declared, given)


def _declared(rules: dict[str, Any], fn: Callable[..., Any]) -> Gate[..., Any]:
    made: Gate[..., Any] = Gate(fn, **rules)
    return made
