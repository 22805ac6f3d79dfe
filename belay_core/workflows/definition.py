"""The definition of a workflow for the engine, the same for both forms."""

import functools
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from types import NoneType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from belay_core.errors import DefinitionError, InvalidInput, ValueRefused
from belay_core.values.codecs import Codec, codec_for
from belay_core.workflows.context import Context

In = TypeVar("In")
Out = TypeVar("Out")


class Definition(ABC, Generic[In, Out]):
    """A named workflow: one typed input, one typed result, and a body."""

    name: str
    is_workflow = True
    """Told from a step by those that know only steps."""

    @property
    @abstractmethod
    def input_annotation(self) -> Any:
        """The type of the input."""

    @property
    @abstractmethod
    def result_annotation(self) -> Any:
        """The type of the result."""

    @property
    def shape(self) -> Sequence[tuple[str, str | None]]:
        """The declared steps' names and kinds, in order; a function declares none."""
        return ()

    @functools.cached_property
    def version(self) -> str:
        """The fingerprint: it changes with the input's fields and the declared steps, not with bodies or rules."""
        return fingerprint(self.input_annotation, self.shape)

    @functools.cached_property
    def code(self) -> str:
        """A short digest of the body's code: with other code a replay need not repeat the recorded calls."""
        return self.version[:8]

    @functools.cached_property
    def input_codec(self) -> Codec[In]:
        """The codec of inputs."""
        return checked_codec(self.name, "input", self.input_annotation)

    @functools.cached_property
    def result_codec(self) -> Codec[Out]:
        """The codec of results."""
        return checked_codec(self.name, "result", self.result_annotation)

    @abstractmethod
    async def body(self, ctx: Context, given: In) -> Out:
        """Execute the workflow from its first line."""

    if not TYPE_CHECKING:

        def __call__(self, *_args: object, **_kwargs: object) -> NoReturn:
            """Refuse: a bare call would not be durable. Raises ``DefinitionError``."""
            how = "start it with client.start; in a test, call its function by .fn"
            raise DefinitionError(f"workflow {self.name}: is not called: {how}")

    def encode_input(self, given: In) -> str:
        """The stored text of an input. Raises ``InvalidInput`` that names the workflow, never the value."""
        try:
            return self.input_codec.encode(given)
        except ValueRefused as refused:
            raise InvalidInput("input", f"workflow {self.name}: {refused}") from None


def fingerprint(given: Any, steps: Sequence[tuple[str, str | None]]) -> str:
    """SHA-256 over the input's field names and the declared steps' names and kinds, in order."""
    parts = [input_fields(given), [list(pair) for pair in steps]]
    return hashlib.sha256(json.dumps(parts, separators=(",", ":")).encode()).hexdigest()


def input_fields(given: Any) -> list[str]:
    """The names of an input type's fields; a scalar has none."""
    if given in (None, NoneType):
        return []
    if is_dataclass(given):
        return [field.name for field in fields(given)]
    found: dict[str, Any] = getattr(given, "model_fields", None) or getattr(given, "__annotations__", None) or {}
    return list(found)


def checked_codec(workflow: str, what: str, annotation: Any) -> Codec[Any]:
    """The codec of a workflow's input or result. Raises ``DefinitionError`` if its type is no data."""
    if isinstance(annotation, TypeVar):
        raise DefinitionError(f"workflow {workflow}: its {what} needs a concrete type")
    return codec_for(annotation)
