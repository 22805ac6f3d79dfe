"""belay in a Django project: one client for all threads, and the command ``manage.py belay``.

Add ``belay_integrations.django`` to ``INSTALLED_APPS``, and set ``BELAY_DATABASE`` to the URL of the database and
``BELAY_APP`` to the ``module:attribute`` that holds the workflows.
"""

from functools import cache

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from belay_integrations.blocking import BlockingClient


def _setting(name: str) -> str:
    """A setting that has to be text. Raises ``ImproperlyConfigured`` without it."""
    value: object = getattr(settings, name, None)
    if not isinstance(value, str) or not value:
        raise ImproperlyConfigured(f"{name} must be set, to text")
    return value


@cache
def client() -> BlockingClient:
    """The client over the database of ``BELAY_DATABASE``, the same for every thread of the process."""
    return BlockingClient(_setting("BELAY_DATABASE"))
