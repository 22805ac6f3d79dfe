"""The function form of a workflow: an async function that calls steps through its context."""

import functools
import inspect
from collections.abc import Callable, Coroutine
from types import NoneType
from typing import Any, Generic, Protocol, TypeVar, overload

from belay_core.errors import DefinitionError
from belay_core.values.codecs import Untyped
from belay_core.workflows import functions
from belay_core.workflows.code_digest import code_digest
from belay_core.workflows.context import Context
from belay_core.workflows.definition import Definition
from belay_core.workflows.names import checked_name

In = TypeVar("In")
Out = TypeVar("Out")


class FunctionWorkflow(Definition[In, Out], Generic[In, Out]):
    """A workflow of one async function ``(ctx)`` or ``(ctx, input)``."""

    def __init__(self, name: str, fn: Callable[..., Coroutine[Any, Any, Out]]) -> None:
        if not inspect.iscoroutinefunction(fn):
            raise DefinitionError(f"workflow {name}: its body must be an async function")
        self.name = checked_name("name", name)
        self.fn = fn
        self._parameters = list(inspect.signature(fn).parameters.values())
        if len(self._parameters) not in {1, 2}:
            raise DefinitionError(f"workflow {name}: its body takes a context and at most one input")
        self.__doc__ = fn.__doc__

    def _annotation(self, name: str) -> Any:
        found = functions.annotation(f"workflow {self.name}", self.fn, name)
        return Untyped if found is functions.MISSING else found

    @property
    def input_annotation(self) -> Any:
        """The annotation of the second parameter."""
        if len(self._parameters) == 1:
            return NoneType
        return self._annotation(self._parameters[1].name)

    @property
    def result_annotation(self) -> Any:
        """The return annotation."""
        return self._annotation("return")

    @functools.cached_property
    def code(self) -> str:
        """The digest of the function, and of those of its module that it names."""
        return code_digest(self.fn)

    async def body(self, ctx: Context, given: In) -> Out:
        """Call the function."""
        return await (self.fn(ctx) if len(self._parameters) == 1 else self.fn(ctx, given))


class WorkflowDecorator(Protocol):
    """Turns an async function into a workflow."""

    @overload
    def __call__(self, fn: Callable[[Context, In], Coroutine[Any, Any, Out]], /) -> FunctionWorkflow[In, Out]: ...
    @overload
    def __call__(self, fn: Callable[[Context], Coroutine[Any, Any, Out]], /) -> FunctionWorkflow[None, Out]: ...


@overload
def workflow(name: Callable[[Context, In], Coroutine[Any, Any, Out]], /) -> FunctionWorkflow[In, Out]: ...
@overload
def workflow(name: Callable[[Context], Coroutine[Any, Any, Out]], /) -> FunctionWorkflow[None, Out]: ...
@overload
def workflow(name: str, /) -> WorkflowDecorator: ...
def workflow(name: Any, /) -> Any:
    """Declare a workflow, as ``@workflow("name")``, or ``@workflow`` with the function's name.

    The body is called again from its first line whenever a run continues; code between ``ctx`` calls must have no
    side effects. The name is stored with each run and finds the code again: keep it. Raises ``DefinitionError``
    for anything but an async function of a context and at most one input, and ``InvalidInput`` for a name that breaks
    its rule.
    """
    if isinstance(name, str):
        return functools.partial(_declared, checked_name("name", name))
    if not inspect.isfunction(name):
        raise DefinitionError("workflow: give it a name or an async function")
    return _declared(name.__name__, name)


def _declared(name: str, fn: Callable[..., Any]) -> FunctionWorkflow[Any, Any]:
    return FunctionWorkflow(name, fn)
