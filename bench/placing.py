"""Where processes run: servers on some processors, and whoever is measured on another.

A client and its server take turns. Which processors the system gives them, and how deep these sleep
meanwhile, changes a round trip by several times, and from one round to the next. So everybody is kept where
they are put, the limit and the peers too. The last processor is for whoever is measured; servers are on the
others (*apart*), or on that one as well (*together*: then nobody sleeps, and all that counts is work).

Where there is only one processor, or the system cannot be told (anything but Linux), nobody is put anywhere.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from tools.servers import Group
from tools.servers.proc import tree

__all__ = ["apart", "seat", "together"]


def processors() -> list[int]:
    """Return the processors that may be used, none if there is no choice."""
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return usable if len(usable) > 1 else []


def apart(group: Group) -> None:
    """Put servers, and all that they start later, on all processors but the last."""
    put(group, processors()[:-1])


def together(group: Group) -> None:
    """Put servers, and all that they start later, on the last processor."""
    put(group, processors()[-1:])


def put(group: Group, where: list[int]) -> None:
    for member in group.members if where else ():
        for pid in tree(member.pid):
            for thread in threads(pid):
                with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                    os.sched_setaffinity(thread, where)


def seat(pid: int) -> None:
    """Put a process that has just been started on the last processor."""
    usable = processors()
    if usable:
        os.sched_setaffinity(pid, usable[-1:])


def threads(pid: int) -> list[int]:
    with contextlib.suppress(FileNotFoundError):
        return [int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()]
    return []
