"""Whether JSON that a person wrote fits the JSON schema of a type: the part of the standard that pydantic writes.

An object has the members of its schema and no others, and a whole number is written as one. Words that are not known
here, such as formats, count as kept: what is written is decoded once more, by its type, before it is used.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, cast

from belay_core.records.attempt import JsonValue
from belay_core.values import json

_KINDS: Final[Mapping[str, Callable[[JsonValue], bool]]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: type(value) is bool,
    "integer": lambda value: type(value) is int,
    "number": lambda value: type(value) in (int, float),
    "string": lambda value: type(value) is str,
    "array": lambda value: type(value) is list,
    "object": lambda value: type(value) is dict,
}
_WORDS: Final = {
    "null": "null",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "array": "a list",
    "object": "an object",
}
_BOUNDS: Final[Mapping[str, tuple[str, Callable[[Any, Any], bool]]]] = {
    "minimum": ("must be at least", lambda value, bound: value >= bound),
    "maximum": ("must be at most", lambda value, bound: value <= bound),
    "exclusiveMinimum": ("must be more than", lambda value, bound: value > bound),
    "exclusiveMaximum": ("must be less than", lambda value, bound: value < bound),
}
_LENGTHS: Final[Mapping[str, tuple[str, Callable[[Any, Any], bool]]]] = {
    "minLength": ("must have at least this many characters:", lambda size, bound: size >= bound),
    "maxLength": ("must have at most this many characters:", lambda size, bound: size <= bound),
}
_COUNTS: Final[Mapping[str, tuple[str, Callable[[Any, Any], bool]]]] = {
    "minItems": ("must have at least this many items:", lambda size, bound: size >= bound),
    "maxItems": ("must have at most this many items:", lambda size, bound: size <= bound),
}

Schema = Mapping[str, Any]


def schema_of(annotation: Any) -> dict[str, Any]:
    """The JSON schema of what is written of a type, every member required; empty where none can be made."""
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticInvalidForJsonSchema
    from pydantic.json_schema import GenerateJsonSchema

    class EveryMember(GenerateJsonSchema):
        # Computed members are not written: they follow from the others.
        def model_fields_schema(self, schema: Any) -> Any:
            return super().model_fields_schema(_without_computed(schema))

        def dataclass_args_schema(self, schema: Any) -> Any:
            return super().dataclass_args_schema(_without_computed(schema))

        def field_is_required(self, field: Any, total: bool) -> bool:  # noqa: FBT001  (the library's signature)
            return super().field_is_required(field, total) if field["type"] == "typed-dict-field" else True

    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        return adapter.json_schema(by_alias=False, mode="serialization", schema_generator=EveryMember)
    except PydanticInvalidForJsonSchema:
        return {}


def _without_computed(schema: dict[str, Any]) -> Any:
    return {**schema, "computed_fields": []}


def mismatch(schema: Schema, value: JsonValue) -> str | None:
    """The first place at which a value does not fit, with the rule it breaks; nothing of the value. None if it fits."""
    found = next(_mismatches(schema, value, "", schema), None)
    return None if found is None else ": ".join(filter(None, found))


def _mismatches(schema: Schema, value: JsonValue, path: str, root: Schema) -> Iterator[tuple[str, str]]:
    for each in _all_of(schema, root):
        yield from _mismatches(each, value, path, root)
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            yield from _of_choices(schema[choice], value, path, root)
    if (words := _other_kind(schema, value)) is not None:
        yield path, words
        return
    yield from _of_bounds(schema, value, path)
    if type(value) is dict:
        yield from _of_object(schema, value, path, root)
    elif type(value) is list:
        yield from _of_list(schema, value, path, root)


def _all_of(schema: Schema, root: Schema) -> Iterator[Schema]:
    """What has to fit besides the schema itself."""
    if "$ref" in schema:
        yield _definition(schema["$ref"], root)
    yield from schema.get("allOf", ())


def _other_kind(schema: Schema, value: JsonValue) -> str | None:
    """What the value would have to be, where it is of another kind or none of the listed ones."""
    given = schema.get("type", ())
    kinds: list[str] = [given] if isinstance(given, str) else list(given)
    if kinds and not any(_KINDS[kind](value) for kind in kinds if kind in _KINDS):
        return "must be " + " or ".join(_WORDS.get(kind, kind) for kind in kinds)
    allowed: list[JsonValue] | None = [schema["const"]] if "const" in schema else schema.get("enum")
    if allowed is not None and not any(type(each) is type(value) and each == value for each in allowed):
        return "must be one of " + ", ".join(json.encode(each) for each in allowed)
    return None


def _of_choices(choices: list[Schema], value: JsonValue, path: str, root: Schema) -> Iterator[tuple[str, str]]:
    """Where no choice fits: why not, if only one is of the value's kind, else that none does."""
    failures = [next(_mismatches(each, value, path, root), None) for each in choices]
    if None in failures:
        return
    inner = [each for each in failures if each is not None and each[0] != path]
    yield inner[0] if len(inner) == 1 else (path, "fits none of the types that are possible here")


def _of_bounds(schema: Schema, value: JsonValue, path: str) -> Iterator[tuple[str, str]]:
    measured: int | float | None = None
    table = _BOUNDS
    if isinstance(value, (int, float)):
        measured = value
    elif isinstance(value, (str, list)):
        measured, table = len(value), _LENGTHS if isinstance(value, str) else _COUNTS
    for name, (words, fits) in table.items():
        if measured is not None and name in schema and not fits(measured, schema[name]):
            yield path, f"{words} {schema[name]}"


def _of_object(schema: Schema, value: dict[str, JsonValue], path: str, root: Schema) -> Iterator[tuple[str, str]]:
    known = cast("Mapping[str, Schema]", schema.get("properties", {}))
    others: object = schema.get("additionalProperties", "properties" not in schema)
    for name in schema.get("required", ()):
        if name not in value:
            yield _below(path, name), "is missing; every member has to be written"
    for name, member in value.items():
        if name in known:
            yield from _mismatches(known[name], member, _below(path, name), root)
        elif isinstance(others, dict):
            yield from _mismatches(cast("Schema", others), member, _below(path, "*"), root)
        elif not others:
            yield path, f"has a member that does not belong there; it has {', '.join(known) or 'none'}"


def _of_list(schema: Schema, value: list[JsonValue], path: str, root: Schema) -> Iterator[tuple[str, str]]:
    first = cast("list[Schema]", schema.get("prefixItems", []))
    rest: object = schema.get("items", {})
    for index, item in enumerate(value):
        if index < len(first):
            yield from _mismatches(first[index], item, f"{path}[{index}]", root)
        elif isinstance(rest, dict):
            yield from _mismatches(cast("Schema", rest), item, f"{path}[{index}]", root)


def _definition(reference: str, root: Schema) -> Schema:
    found: Any = root
    for part in reference.removeprefix("#/").split("/"):
        found = found[part.replace("~1", "/").replace("~0", "~")]
    return cast("Schema", found)


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
