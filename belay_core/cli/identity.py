"""Whose word a command carries."""

import os

from belay_core.errors import InvalidInput


def who(by: str | None) -> str:
    """The name that was given, else that of the user this process runs as.

    The user is asked of the operating system, not of the environment, which anybody may have set.
    """
    if by is not None:
        return by
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        raise InvalidInput("by", "must be given, by --by or BELAY_APPROVER: this user has no name") from None
