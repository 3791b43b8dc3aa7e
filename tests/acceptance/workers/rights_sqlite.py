"""Use every module on SQLite as the user that this process runs as: `rights_sqlite.py FOLDER FLAVOUR`.

With `hold` or `wait` as the flavour: take the lock `shared`, say so, and give it back when told to.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[3])]

import rights_modules as modules  # noqa: E402
from rights_site import Site  # noqa: E402

from fencelock import Client  # noqa: E402
from fencelock.fencing import fenced_read, fenced_write  # noqa: E402


def use_everything(folder: Path, flavour: str, own: Path) -> None:
    app = f"sqlite://{folder}/app.db"
    site = Site(f"sqlite://{folder}/locks.db", flavour, own, database=app)
    modules.locks(site)
    modules.looking(site, site)
    modules.breaking(site, site)
    modules.schedules(site)
    modules.flights(site)
    modules.idempotency_keys(site)
    modules.exchanges(site)
    modules.exchanges(Site(site.url, flavour, own, database=f"file://{folder}/exchange"))
    modules.sql_fences(site)
    modules.do_jobs(site)
    found = modules.doctor(site)
    assert "locks" not in found, found
    modules.board(site, site, breaks=True)
    report = folder / "report.txt"
    for token in (1, 2):
        with Client(site.url) as locks, locks.lock("report") as lease:
            fenced_write(report, b"%d" % token, token=lease.token)
            assert fenced_read(report, token=lease.token) == b"%d" % token


def take(folder: Path, patience: float) -> None:
    with Client(f"sqlite://{folder}/locks.db") as locks, locks.lock("shared", timeout=patience) as lease:
        print(lease.token, flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    where, what = Path(sys.argv[1]), sys.argv[2]
    if what == "hold":
        take(where, 0)
    elif what == "wait":
        take(where, 30)
    else:
        use_everything(where, what, Path(sys.argv[3]))
