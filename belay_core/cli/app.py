"""Load the app: the workflows that ``module:attribute`` names."""

import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, cast

from belay_core.errors import DefinitionError, InvalidInput
from belay_core.workflows.definition import Definition
from belay_core.workflows.registry import Registrable, catalogue


def find_app(where: str | None) -> Mapping[str, Definition[Any, Any]]:
    """The workflows of the app, by name. Raises ``InvalidInput`` if ``--app`` names none."""
    if where is None:
        raise InvalidInput("app", "must be given, by --app MODULE:ATTRIBUTE or BELAY_APP")
    module, _, attribute = where.partition(":")
    if not attribute.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise InvalidInput("app", "must be MODULE:ATTRIBUTE, such as shop.flows:workflows")
    try:
        found: object = getattr(_import_module(module), attribute)
    except AttributeError:
        raise InvalidInput("app", f"module {module} has no attribute {attribute}") from None
    definitions = cast("Sequence[object]", found) if isinstance(found, (list, tuple)) else (found,)
    if not definitions:
        raise InvalidInput("app", f"{where} holds no workflow")
    try:
        return catalogue(cast("Sequence[Registrable[Any, Any]]", definitions))
    except DefinitionError as error:
        raise InvalidInput("app", f"{where}: {error}") from None


def _import_module(name: str) -> ModuleType:
    here = os.getcwd()  # noqa: PTH109  (an entry of sys.path is text)
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            raise InvalidInput("app", f"there is no module {error.name} here or on the module path") from None
        raise InvalidInput("app", _import_error(name, error)) from None
    except Exception as error:  # noqa: BLE001  (a module may raise anything while it is imported)
        raise InvalidInput("app", _import_error(name, error)) from None


def _import_error(name: str, error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if not frames[-1].filename.startswith("<") else ""
    return f"importing {name} failed: {type(error).__name__}: {error}{where}"
