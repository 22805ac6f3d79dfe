"""The person on whose behalf a command acts."""

import os

from belay_core.errors import InvalidInput


def acting_user(by: str | None) -> str:
    """The name that was given, else that of the user of this process. Raises ``InvalidInput`` if there is none.

    The user comes from the operating system, not from an environment variable, which any program may have set.
    """
    if by is not None:
        return by
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        raise InvalidInput("by", "must be given, by --by or BELAY_APPROVER: this user has no name") from None
