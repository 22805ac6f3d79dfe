"""The class form of a workflow: steps and gates declared in order, inherited, with a fingerprint."""

from collections.abc import Sequence
from types import NoneType
from typing import Any, ClassVar, Generic, TypeVar, get_args, get_origin

from belay_core.errors import BelayError, DefinitionError
from belay_core.values.own_copy import own_copy
from belay_core.workflows import functions
from belay_core.workflows.context import Context
from belay_core.workflows.definition import Definition
from belay_core.workflows.gate import Gate
from belay_core.workflows.gate_answers import Approved, Lapsed, NotNeeded, Rejected
from belay_core.workflows.names import checked_name
from belay_core.workflows.step import DeclaresSteps, Step

In = TypeVar("In")
Out = TypeVar("Out")
R = TypeVar("R")


class GateRefused(BelayError):
    """A gate of the class form was rejected or lapsed, which fails the run."""


class StepContext(Generic[In]):
    """The context of a method of the class form: the input, earlier outputs, and its own key."""

    def __init__(self, given: In, outputs: dict[str, object], ctx: Context, step_key: str) -> None:
        self._input = given
        self._outputs = outputs
        self._ctx = ctx
        self._key = step_key

    @property
    def input(self) -> In:
        """What the run was started with; a copy of its own each time."""
        return own_copy(self._input)

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self._ctx.run_id

    @property
    def step_key(self) -> str:
        """The key for a receiver that deduplicates: the same on every attempt."""
        return f"{self._ctx.run_id}/{self._key}"

    def out(self, earlier: Step[..., R] | Gate[..., R]) -> R:
        """The output of an earlier step, or the answer of an earlier gate; a copy of its own each time.

        Raises ``DefinitionError``.
        """
        if earlier.name not in self._outputs:
            raise DefinitionError(f"{earlier.name}: has no output yet; only earlier steps have one")
        return own_copy(self._outputs[earlier.name])  # type: ignore[return-value]  # stored under this very step's name


class Workflow(DeclaresSteps, Generic[In, Out]):
    """Base of declared workflows: ``class Refund(Workflow[int, str])`` with ``@step`` and ``@gate`` methods.

    They run in the order of declaration, those of a base class first; one that is redefined keeps its place.
    The last step's output is the result. Collaborators come through ``__init__``; then an instance is registered.
    """

    is_workflow = True
    """Told from a step by those that know only steps."""
    workflow_name: ClassVar[str | None] = None
    """The stored name; the class's name unless given."""


class DeclaredWorkflow(Definition[In, Out], Generic[In, Out]):
    """The definition of a declared workflow."""

    def __init__(self, instance: Workflow[In, Out]) -> None:
        kind = type(instance)
        self.name = checked_name("workflow_name", kind.__dict__.get("workflow_name") or _class_name(kind))
        self.instance = instance
        self.steps = declared_steps(kind)
        if not self.steps:
            raise DefinitionError(f"workflow {self.name}: it declares no step")
        given, result = _arguments(kind)
        self._given, self._result = given, result
        self._check_methods()

    @property
    def input_annotation(self) -> Any:
        """The first type argument."""
        return self._given

    @property
    def result_annotation(self) -> Any:
        """The second type argument."""
        return self._result

    @property
    def shape(self) -> Sequence[tuple[str, str | None]]:
        """Names and kinds of the steps and gates, in order."""
        return [(each.name, each.kind) for each in self.steps]

    async def body(self, ctx: Context, given: In) -> Out:
        """Execute the declared steps and gates in order."""
        outputs: dict[str, object] = {}
        for each in self.steps:
            if isinstance(each, Gate):
                outputs[each.name] = await self._ask(each, ctx, given, outputs)
            else:
                outputs[each.name] = await self._execute(each, ctx, given, outputs)
        return outputs[self.steps[-1].name]  # type: ignore[return-value]  # checked against Out when registered

    async def _execute(self, step: Step[..., Any], ctx: Context, given: In, outputs: dict[str, object]) -> object:
        return await ctx.keyed_step(
            step, lambda key: step.fn(self.instance, StepContext(given, dict(outputs), ctx, key))
        )

    async def _ask(self, gate: Gate[..., Any], ctx: Context, given: In, outputs: dict[str, object]) -> object:
        subject = gate.fn(self.instance, StepContext(given, dict(outputs), ctx, gate.name))
        rules: dict[str, Any] = {"subject": subject, "of": gate.subject_annotation}
        if gate.lapse_after is not None:
            rules["lapse_after"] = gate.lapse_after
        if gate.when is not None:
            rules["when"] = gate.when
        answer = await self._answer(ctx, gate.name, rules)
        if gate.on_reject == "fail" and isinstance(answer, (Rejected, Lapsed)):
            raise GateRefused(f"gate {gate.name} was {'rejected' if isinstance(answer, Rejected) else 'not decided'}")
        return answer

    async def _answer(
        self, ctx: Context, name: str, rules: dict[str, Any]
    ) -> Approved[Any] | Rejected | Lapsed | NotNeeded[Any]:
        ask: Any = ctx.gate
        answer: Approved[Any] | Rejected | Lapsed | NotNeeded[Any] = await ask(name, **rules)
        return answer

    def _check_methods(self) -> None:
        last = self.steps[-1]
        if isinstance(last, Gate):
            raise DefinitionError(f"workflow {self.name}: a gate cannot be its last step; it has no result")
        for each in self.steps:
            self._check_context(each)
        given = functions.annotation(f"workflow {self.name}: step {last.name}", last.fn, "return")
        if given is functions.MISSING:
            return
        if given != self._result and not (given in (None, NoneType) and self._result in (None, NoneType)):
            raise DefinitionError(f"workflow {self.name}: its last step {last.name} does not give the result type")

    def _check_context(self, each: "Step[..., Any] | Gate[..., Any]") -> None:
        written = [name for name in getattr(each.fn, "__annotations__", {}) if name != "return"]
        for name in written[:1]:
            hint = functions.annotation(f"workflow {self.name}: {each.name}", each.fn, name)
            of = get_args(hint)
            if get_origin(hint) is not StepContext or (of and of[0] != self._given and of[0] is not Any):
                raise DefinitionError(f"workflow {self.name}: {each.name} must take StepContext of the input type")


def declared_steps(kind: type) -> "list[Step[..., Any] | Gate[..., Any]]":
    """The steps and gates of a class in order, its bases' first. Raises ``DefinitionError`` for a repeated name."""
    found: dict[str, Step[..., Any] | Gate[..., Any]] = {}
    for base in reversed(kind.__mro__):
        for attribute, value in vars(base).items():
            if isinstance(value, (Step, Gate)):
                found[attribute] = value
            elif attribute in found:
                del found[attribute]
    names = [each.name for each in found.values()]
    for name in names:
        if names.count(name) > 1:
            raise DefinitionError(f"{name}: declared twice; steps and gates share one namespace")
    return list(found.values())


def _arguments(kind: type) -> tuple[Any, Any]:
    for base in kind.__mro__:
        for parent in getattr(base, "__orig_bases__", ()):
            if get_origin(parent) is Workflow:
                return get_args(parent)[0], get_args(parent)[1]
    raise DefinitionError(f"{kind.__name__}: name its input and result, as Workflow[In, Out]")


def _class_name(kind: type) -> str:
    if "<locals>" in kind.__qualname__ and kind.__name__ == "<lambda>":
        raise DefinitionError("a workflow class needs a name")
    return kind.__name__
