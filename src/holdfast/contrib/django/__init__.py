"""Django: locks by your settings, for views, functions and commands.

    INSTALLED_APPS = [..., "holdfast.contrib.django"]
    HOLDFAST = {"default": {"URL": "redis://localhost", "NAMESPACE": "shop"}}     # or HOLDFAST_URL = "redis://…"

    @lock("report:{pk}", timeout=5)
    def report(request, pk, lease): ...

    with locks().lock("stock") as lease: ...

`conf.py` reads the settings and opens clients, `decorators.py` has `lock`, `commands.py` the commands that
run once in the fleet, `management/` the command `manage.py holdfast`, `checks.py` the system checks.
"""

from holdfast.contrib.django.commands import OnceCommand
from holdfast.contrib.django.conf import alocks, locks
from holdfast.contrib.django.decorators import lock

__all__ = ["OnceCommand", "alocks", "lock", "locks"]
