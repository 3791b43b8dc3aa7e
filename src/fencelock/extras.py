"""Which packages an extra brings, and the oldest version of each that works.

`pyproject.toml` declares the same for installers; a test compares the two, and `make floors` runs the
tests with exactly these versions. A package that is older is refused in one line where a backend is made:
it would fail later, with an error of its own that names neither version.
"""

from __future__ import annotations

import re

from fencelock.errors import ConfigurationError

__all__ = ["FLOORS", "refuse_old", "too_old"]

FLOORS: dict[str, dict[str, str]] = {
    "cli": {"click": "8.1.2", "rich": "12.6"},
    "redis": {"redis": "5.0", "hiredis": "2.2.3"},
    "postgres": {"psycopg": "3.1.20"},
    "mysql": {"PyMySQL": "1.0.3", "asyncmy": "0.2.15", "cryptography": "3.4.8"},
    "zookeeper": {"kazoo": "2.11"},
    "etcd": {"hpack": "4.0", "protobuf": "4.25"},
    "consul": {},
    "jobs": {"SQLAlchemy": "2.0.22"},
    "schedule": {"cronsim": "2.7"},
    "dashboard": {"starlette": "0.40", "uvicorn": "0.29", "prometheus-client": "0.20"},
    "starlette": {"starlette": "0.40"},
    "fastapi": {"fastapi": "0.121"},
    "django": {"django": "4.2"},
    "celery": {"celery": "5.3.1"},
    "apscheduler": {"apscheduler": "3.11"},
    "prometheus": {"prometheus-client": "0.20"},
    "opentelemetry": {"opentelemetry-api": "1.30"},
}


def refuse_old(extra: str, what: str) -> None:
    """Raise `ConfigurationError` if a package of `extra` is older than its floor. `what` needs it."""
    if old := too_old(extra, what):
        raise ConfigurationError(old)


def too_old(extra: str, what: str) -> str:
    """Return what to say about a package of `extra` that is too old; '' if none is."""
    from importlib.metadata import PackageNotFoundError, version

    for package, floor in FLOORS[extra].items():
        try:
            found = version(package)
        except PackageNotFoundError:
            continue  # its import says so
        if _numbers(found) < _numbers(floor):
            return (
                f"{what} needs {package} {floor} or newer, this is {found}: pip install 'fencelock[{extra}]'"
            )
    return ""


def _numbers(version: str) -> tuple[int, ...]:
    release = re.match(r"[\d.]*", version)
    numbers = [int(number) for number in release[0].split(".") if number] if release else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
