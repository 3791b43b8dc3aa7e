"""The application `holdfast.contrib.django`: it brings the checks and `manage.py holdfast`. No models."""

from __future__ import annotations

from django.apps import AppConfig  # type: ignore[import-untyped]
from django.core.checks import register  # type: ignore[import-untyped]

from holdfast.contrib.django.checks import check_reach, check_settings

__all__ = ["HoldfastConfig"]


class HoldfastConfig(AppConfig):  # type: ignore[misc]
    """holdfast as an application of Django."""

    name = "holdfast.contrib.django"
    label = "holdfast"
    verbose_name = "holdfast"

    def ready(self) -> None:
        """Register the checks."""
        register(check_settings)
        register(check_reach, deploy=True)
