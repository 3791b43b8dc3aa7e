"""Django: locks by your settings, for views, functions and commands.

    INSTALLED_APPS = [..., "fencelock.contrib.django"]
    FENCELOCK = {"default": {"URL": "redis://localhost", "NAMESPACE": "shop"}}     # or FENCELOCK_URL = "redis://…"

    @lock("report:{pk}", timeout=5)
    def report(request, pk, lease): ...

    with locks().lock("stock") as lease: ...

`conf.py` reads the settings and opens clients, `decorators.py` has `lock`, `commands.py` the commands that
run once in a period or one at a time, `management/` the command `manage.py fencelock`, `checks.py` the system
checks.
"""

from fencelock.contrib.django.commands import ExclusiveCommand, OnceCommand
from fencelock.contrib.django.conf import alocks, locks
from fencelock.contrib.django.decorators import lock

__all__ = ["ExclusiveCommand", "OnceCommand", "alocks", "lock", "locks"]
