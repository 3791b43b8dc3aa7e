"""The dashboard: who holds, who waits, since when, and may I break it. A web page over any backend.

    fencelock dashboard --url redis://localhost           # by itself
    app = create_app(["redis://localhost"], token=…)     # or mounted into an application of yours

A request's way: `gate.py` (may it come in), `app.py` (what it asks for), `hub.py` (the stream). Beside it
`watch.py` asks each backend, once for everybody, and `picture.py` says what has changed.

Not promised: a history. It shows what is seen while somebody looks; what is to be kept belongs into metrics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencelock.dashboard.app import create_app

__all__ = ["create_app"]


def __getattr__(name: str) -> Any:
    # Not at once: the parts without I/O need no web framework.
    if name == "create_app":
        from fencelock.dashboard.app import create_app

        return create_app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
