"""The size of a value as text, where one object may be part of it many times."""

from collections.abc import Collection
from typing import Final, cast

from belay_core import limits

_PLAIN: Final = frozenset({list, tuple, set, frozenset})


HOLDS_TOO_MANY: Final = f"holds more than {limits.MAXIMUM_HELD_VALUES} values"


def holds_too_many(value: object) -> bool:
    """Whether the built-in containers in a value have too many members; a shared one counts each time.

    Twenty lists, each of which holds the one before it twice, are a few bytes and a million values.
    """
    count = 0
    stack = [value]
    while stack:
        each = stack.pop()
        if type(each) is dict:
            members: Collection[object] = cast("dict[object, object]", each).values()
        elif type(each) in _PLAIN:
            members = cast("Collection[object]", each)
        else:
            continue
        count += len(members)
        if count > limits.MAXIMUM_HELD_VALUES:
            return True
        stack.extend(members)
    return False
