"""A project of Django for the tests: settings, two databases, and views under locks."""

from __future__ import annotations

import asyncio
from typing import Any

import django
from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse

MEMORY = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}


def set_up() -> None:
    """Configure Django in this process, once."""
    if settings.configured:
        return
    settings.configure(
        ALLOWED_HOSTS=["*"],
        DATABASES={"default": {**MEMORY, "ATOMIC_REQUESTS": True}, "other": MEMORY},
        FENCELOCK={"default": {"URL": "memory://", "NAMESPACE": "shop"}},
        INSTALLED_APPS=["fencelock.contrib.django"],
        ROOT_URLCONF=__name__,
        SECRET_KEY="of the tests",
        USE_TZ=True,
    )
    django.setup()


set_up()

from django.db import connection, transaction  # noqa: E402
from django.urls import path  # noqa: E402
from django.utils.decorators import method_decorator  # noqa: E402
from django.views import View  # noqa: E402

from fencelock.contrib.django import alocks, lock, locks  # noqa: E402

seen: list[Any] = []


@lock("report:{pk}", timeout=0)
def report(request: HttpRequest, pk: int, lease: Any) -> HttpResponse:
    seen.append((lease.name, connection.in_atomic_block))
    return JsonResponse({"token": lease.token, "name": lease.name})


@lock("report:{pk}", timeout=0)
async def report_async(request: HttpRequest, pk: int, lease: Any) -> HttpResponse:
    other = await (await alocks()).lock(f"report:{pk}").try_acquire()
    return JsonResponse({"name": lease.name, "free": other is not None})


@lock("lost:{pk}", ttl=0.2)
def lost(request: HttpRequest, pk: int, lease: Any) -> HttpResponse:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO written VALUES (?)".replace("?", "%s"), [pk])
    locks().force_release(lease.name)
    assert lease.lost.wait(30)
    return HttpResponse("done")


@lock("lost:{pk}", ttl=0.2)
async def lost_async(request: HttpRequest, pk: int, lease: Any) -> HttpResponse:
    await (await alocks()).force_release(lease.name)
    await asyncio.sleep(30)
    raise AssertionError("it was not cancelled")


@method_decorator(lock("page:{pk}", timeout=0), name="dispatch")
class Page(View):
    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        return JsonResponse({"held": len(locks().list()), "atomic": connection.in_atomic_block})


class Inside(View):
    @lock("inside:{pk}")
    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        raise AssertionError("it runs in a transaction that ends after its lock")


@transaction.non_atomic_requests
def plain(request: HttpRequest) -> HttpResponse:
    return HttpResponse(str(connection.in_atomic_block))


@lock("plain")
@transaction.non_atomic_requests
def locked_plain(request: HttpRequest) -> HttpResponse:
    return HttpResponse(str(connection.in_atomic_block))


urlpatterns = [
    path("report/<int:pk>", report),
    path("areport/<int:pk>", report_async),
    path("lost/<int:pk>", lost),
    path("alost/<int:pk>", lost_async),
    path("page/<int:pk>", Page.as_view()),
    path("inside/<int:pk>", Inside.as_view()),
    path("plain", plain),
    path("locked-plain", locked_plain),
]
