"""The one reader of URLs of SQLite: the path of the file, or a database in memory."""

from typing import Final

from belay_core.errors import InvalidInput

MEMORY: Final = ":memory:"
"""What stands for a database in memory."""
_SCHEMES: Final = ("sqlite:", "sqlite+")


def names_sqlite(text: str) -> bool:
    """Whether this is a URL of SQLite, well written or not."""
    return text.startswith(_SCHEMES)


def path_of(parameter: str, url: str) -> str:
    """The path that a URL of SQLite names, or ``MEMORY``.

    ``sqlite:///relative.db`` and ``sqlite:////absolute.db`` name files, ``sqlite://`` and ``sqlite:///:memory:``
    memory. Raises ``InvalidInput`` about ``parameter`` where anything stands between the second and the third slash,
    or after a question mark: it would be ignored, and another database would be opened than the one that was meant.
    """
    _, slashes, rest = url.partition("://")
    host, _, path = rest.partition("/")
    if not slashes or host:
        raise InvalidInput(
            parameter,
            "a URL of SQLite names no host: write sqlite:///relative.db (three slashes) or "
            "sqlite:////absolute.db (four), and sqlite:// for memory",
        )
    if "?" in path:
        raise InvalidInput(
            parameter, "a URL of SQLite takes no parameters: leave out the question mark and what follows"
        )
    return path or MEMORY
