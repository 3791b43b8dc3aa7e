"""The application `fencelock.contrib.django`: it brings the checks and `manage.py fencelock`. No models."""

from __future__ import annotations

from django.apps import AppConfig  # type: ignore[import-untyped]
from django.core.checks import register  # type: ignore[import-untyped]

from fencelock.contrib.django.checks import check_reach, check_settings

__all__ = ["FencelockConfig"]


class FencelockConfig(AppConfig):  # type: ignore[misc]
    """fencelock as an application of Django."""

    name = "fencelock.contrib.django"
    label = "fencelock"
    verbose_name = "fencelock"

    def ready(self) -> None:
        """Register the checks."""
        register(check_settings)
        register(check_reach, deploy=True)
