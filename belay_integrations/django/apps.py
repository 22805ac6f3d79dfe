"""The application that brings the management command."""

from django.apps import AppConfig


class BelayConfig(AppConfig):
    """belay as an application of a Django project; it has no models."""

    name = "belay_integrations.django"
    label = "belay"
    verbose_name = "belay"
