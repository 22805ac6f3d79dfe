"""The workflows of a process, by name."""

import inspect
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from belay_core.errors import DefinitionError
from belay_core.workflows.class_form import DeclaredWorkflow, Workflow
from belay_core.workflows.definition import Definition
from belay_core.workflows.step import Step

In = TypeVar("In")
Out = TypeVar("Out")

Registrable: TypeAlias = Definition[In, Out] | type[Workflow[In, Out]] | Workflow[In, Out]
"""What may be registered or started: a function workflow, a declared class, or an instance of one."""


def as_definition(what: Registrable[In, Out]) -> Definition[In, Out]:
    """The definition of a workflow. Raises ``DefinitionError`` for anything else."""
    if isinstance(what, Definition):
        return what
    if isinstance(what, Workflow):
        return DeclaredWorkflow(what)
    if _is_workflow_class(what):
        try:
            return DeclaredWorkflow(what())
        except TypeError:
            raise DefinitionError(f"{what.__name__}: it needs collaborators; register an instance") from None
    kind = getattr(what, "__name__", type(what).__name__) if _is_class(what) else type(what).__name__
    remedy = "give what @workflow made, a subclass of Workflow, or an instance of one"
    if isinstance(what, Step):
        remedy = "this is a step: call it from a workflow"
    elif inspect.isfunction(what):
        remedy = f"this is a plain function: decorate it with @workflow({what.__name__!r})"
    raise DefinitionError(f"definitions: {kind} is no workflow; {remedy}")


def _is_class(what: object) -> bool:
    return isinstance(what, type)


def _is_workflow_class(what: object) -> bool:
    return isinstance(what, type) and issubclass(what, Workflow)


def catalogue(definitions: Iterable[Registrable[Any, Any]]) -> Mapping[str, Definition[Any, Any]]:
    """The definitions by name. Raises ``DefinitionError`` for a repeated name or for types that are no data."""
    found: dict[str, Definition[Any, Any]] = {}
    for each in definitions:
        definition = as_definition(each)
        if definition.name in found:
            raise DefinitionError(f"workflow {definition.name}: registered twice")
        _ = definition.version, definition.input_codec, definition.result_codec
        found[definition.name] = definition
    return MappingProxyType(found)
