"""Runs the conformance suite and doctor against every server version at hand, and writes what came of it.

python -m tools.versions                    run everything, then write the page
python -m tools.versions redis@sid etcd     run these again; the other results stay
python -m tools.versions --page             write docs/reference/versions.md from the stored results
python -m tools.versions --check            change nothing; exit 1 if the page is not current

The results are in docs/reference/versions.json, which is written after each server. `NAME@SUITE` is the
version of another Debian suite, as in `tools.servers`; `+WAY` is the same server reached in another way.

Exit status: 0 all as it should be, 1 a check failed, a server did not start, or the page is not current.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools.results import Record, Results  # noqa: E402
from tools.servers import Group, Server, ServerError, start  # noqa: E402

from fencelock import Client  # noqa: E402
from fencelock.errors import FencelockError  # noqa: E402
from fencelock.testing.conformance import FLAVOURS, Result, run  # noqa: E402

EVERY = 60
"""Checks between two lines of progress."""


@dataclass(frozen=True)
class Target:
    """One server to run against: how it is called, what the page calls it, and how to reach it."""

    product: str
    kind: str
    way: str = ""
    reach: Callable[[Group], str] = lambda group: group.url
    fresh: Callable[[Server], object] = lambda server: None
    """Called before each flavour, so that the second does not profit from the first."""
    refused: bool = False
    """Too old: fencelock must say so in one line."""

    @property
    def name(self) -> str:
        return f"{self.kind}+{self.way}" if self.way and not self.kind.startswith(self.way) else self.kind


def _over_tls(group: Group) -> str:
    """MySQL's own certificate has no host name in it."""
    return f"{group.url}?ssl_ca={quote(str(group.members[0].data / 'ca.pem'))}&ssl_verify=ca"


def _by(scheme: str) -> Callable[[Group], str]:
    return lambda group: f"{scheme}://{group.url.partition('://')[2]}"


def _forget_logins(server: Any) -> None:
    """Lets the next login be a first one again: the server has a cache of passwords that it has seen."""
    server.query("FLUSH PRIVILEGES")


TARGETS = (
    Target("Redis", "redis@bullseye", refused=True),
    Target("Redis", "redis"),
    Target("Redis", "redis@sid"),
    Target("Redis", "cluster@sid", "cluster"),
    Target("Redis", "sentinel@sid", "sentinel"),
    Target("Valkey", "valkey"),
    Target("Valkey", "valkey@sid"),
    Target("PostgreSQL", "postgres@bullseye"),
    Target("PostgreSQL", "postgres"),
    Target("PostgreSQL", "postgres@trixie"),
    Target("PostgreSQL", "postgres@sid"),
    Target("PostgreSQL", "postgres@sid", "advisory", _by("postgresql+advisory")),
    Target("MariaDB", "mariadb"),
    Target("MariaDB", "mariadb@sid"),
    Target("MySQL", "mysql@sid", fresh=_forget_logins),
    Target("MySQL", "mysql@sid", "tls", _over_tls, _forget_logins),
    Target("MySQL", "mysql@sid", "getlock", _by("mysql+getlock"), _forget_logins),
    Target("ZooKeeper", "zookeeper@bullseye", refused=True),
    Target("ZooKeeper", "zookeeper"),
    Target("ZooKeeper", "zookeeper@sid"),
    Target("etcd", "etcd"),
    Target("etcd", "etcd@sid"),
    Target("Consul", "consul"),
)
NAMES = [target.name for target in TARGETS]
WAYS = {
    "": "",
    "advisory": ", `postgresql+advisory://`",
    "cluster": ", `redis+cluster://`",
    "getlock": ", `mysql+getlock://`",
    "sentinel": ", `redis+sentinel://`",
    "tls": ", over TLS",
}
NEVER = {
    "Redis": "6.2, 7.2, 7.4, and every managed Redis",
    "Valkey": "7.2",
    "PostgreSQL": "12, 14, 16, and every managed PostgreSQL",
    "MariaDB": "10.6, 11.4 and 12",
    "MySQL": "8.0, 8.4, and every managed MySQL",
    "ZooKeeper": "3.5, 3.6 and 3.7",
    "etcd": "3.6",
    "Consul": "1.9 and newer",
}
"""What users run, and no Debian suite has: neither refused nor known to work."""


# Running.


def examine(target: Target) -> Record:
    """Start the server, run everything against it, and return what came of it."""
    begun = time.monotonic()
    record: Record = {"server": target.product, "way": target.way, "date": f"{datetime.now(UTC):%Y-%m-%d}"}
    with start(target.kind) as group:
        record["version"] = group.version()
        url = target.reach(group)
        say(f"{target.name}: {target.product} {record['version']}")
        # Its login is the first one that the server sees.
        record["doctor"] = consult(url)
        if target.refused:
            record["refused"] = refusal(url)
        else:
            record["conformance"] = {flavour: conform(target, group, url, flavour) for flavour in FLAVOURS}
    record["seconds"] = round(time.monotonic() - begun)
    return record


def conform(target: Target, group: Group, url: str, flavour: str) -> Record:
    """Return the counts of one flavour, and every failure and repeat."""
    target.fresh(group.members[0])
    results: list[Result] = []

    def note(result: Result) -> None:
        results.append(result)
        if result.outcome == "failed":
            say(f"  FAILED {flavour} {result.check.name}: {result.detail}")
        elif len(results) % EVERY == 0:
            say(f"  {flavour}: {len(results)} checks")

    summary = run(url, flavours=[flavour], on_result=note)
    counts = {"passed": summary.passed, "failed": summary.failed, "repeated": summary.repeated}
    say(f"  {flavour}: {', '.join(f'{number} {what}' for what, number in counts.items())}")
    return {
        **counts,
        "not applicable": summary.not_applicable,
        "failures": {each.check.name: each.detail for each in results if each.outcome == "failed"},
        "repeats": {each.check.name: each.at_first for each in results if each.at_first},
    }


def consult(url: str) -> Record:
    """Return what doctor promises, and what it finds that is not well."""
    command = [str(Path(sys.executable).with_name("fencelock")), "doctor", "--json", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    try:
        told = json.loads(done.stdout)
    except ValueError:
        said = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        return {"promise": "", "error": plain(said[-1]), "findings": []}
    findings = [
        f"{each['severity']}: {each['subject']}: {plain(each['detail'])}"
        for each in told["findings"]
        if each["severity"] in ("critical", "warning")
    ]
    return {"promise": told["promise"], "findings": findings}


def refusal(url: str) -> str:
    """Return the line that an attempt to take a lock ends with."""
    try:
        with Client(url) as locks, locks.lock("versions", ttl=10, timeout=5):
            return ""
    except FencelockError as error:
        return plain(str(error))


def plain(text: str) -> str:
    """The text without what differs from run to run: addresses and folders."""
    text = re.sub(r"127\.0\.0\.1:\d+", "HOST", text)
    return re.sub(r"/tmp/fencelock-[^/ ]+", "FOLDER", text)


def is_well(record: Record) -> bool:
    """Whether nothing failed; of a server that must be refused, whether one line says what is needed."""
    if "refused" in record:
        return "is needed" in record["refused"] and "\n" not in record["refused"]
    runs = record.get("conformance", {}).values()
    return "error" not in record and all(run["failed"] == 0 for run in runs)


def run_all(targets: Sequence[Target]) -> int:
    """Examine each in turn; its results are stored at once."""
    failed = []
    for target in targets:
        try:
            record = examine(target)
        except (ServerError, FencelockError, subprocess.TimeoutExpired) as error:
            line = plain(str(error).splitlines()[0])
            say(f"{target.name}: NOT RUN: {line}")
            record = {"server": target.product, "way": target.way, "error": line}
        RESULTS.store(target.name, record)
        if not is_well(record):
            failed.append(target.name)
    say(
        f"{len(targets) - len(failed)} passed, {len(failed)} failed{': ' if failed else ''}{' '.join(failed)}"
    )
    return bool(failed)


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


# The page.

INTRODUCTION = """\
# Server versions

What was run: for each version, the whole [conformance suite](../howto/write-a-backend.md) in both flavours,
and [`fencelock doctor`](../howto/check-a-set-up.md). `make versions` runs it again and writes this page, so
the page claims nothing else. Versions come from Debian: the machine's own release, and
[other suites](servers.md#other-versions) beside it.

*Repeated* counts the checks about time in which something was late at first. They ran once more, alone.
"""


def page(results: dict[str, Record]) -> str:
    """Return the page as it should be."""
    ran = {name: record for name, record in results.items() if "conformance" in record}
    parts = [
        INTRODUCTION,
        _table(ran),
        *_failures(ran),
        *_promises(ran),
        *_refusals(results),
        _not_run(results),
    ]
    return "\n".join(parts)


def _table(ran: dict[str, Record]) -> str:
    heads = "| server | version | flavour | passed | failed | repeated | not applicable | run |\n"
    rows = [
        f"| {_title(record)} | {record['version']} | {flavour} | {run['passed']} | {run['failed']} |"
        f" {run['repeated']} | {run['not applicable']} | {record['date']} |\n"
        for record in ran.values()
        for flavour, run in record["conformance"].items()
    ]
    return f"{heads}|---|---|---|---:|---:|---:|---:|---|\n{''.join(rows)}"


def _title(record: Record) -> str:
    return f"{record['server']}{WAYS[record['way']]}"


def _failures(ran: dict[str, Record]) -> Iterator[str]:
    lines = [
        f"- {_title(record)} {record['version']}, {flavour}, `{check}`: {detail}\n"
        for record in ran.values()
        for flavour, run in record["conformance"].items()
        for check, detail in run["failures"].items()
    ]
    if lines:
        yield f"## Failures\n\n{''.join(lines)}"


def _promises(ran: dict[str, Record]) -> Iterator[str]:
    yield "## What doctor says\n\nOf servers with the settings of `tools.servers`.\n"
    for record in ran.values():
        doctor = record["doctor"]
        findings = "".join(f"- {finding}\n" for finding in doctor["findings"])
        said = doctor["promise"] or f"Doctor failed: {doctor['error']}"
        yield f"**{_title(record)}, {record['version']}**: {said}\n" + (f"\n{findings}" if findings else "")


def _refusals(results: dict[str, Record]) -> Iterator[str]:
    rows = [
        f"| {_title(record)} | {record['version']} | {record['refused'] or 'not refused'} |\n"
        for record in results.values()
        if "refused" in record
    ]
    if rows:
        yield f"## Refused\n\n| server | version | the error |\n|---|---|---|\n{''.join(rows)}"


def _not_run(results: dict[str, Record]) -> str:
    rows = "".join(f"| {product} | {versions} |\n" for product, versions in NEVER.items())
    missing = [
        f"- `{target.name}`: {results.get(target.name, {}).get('error', 'not run yet')}\n"
        for target in TARGETS
        if "version" not in results.get(target.name, {})
    ]
    extra = f"\nAsked for, and not run:\n\n{''.join(missing)}" if missing else ""
    return (
        "## Not run\n\nNo Debian suite has these versions: they may work, and no run here says so.\n\n"
        f"| server | versions |\n|---|---|\n{rows}{extra}"
    )


RESULTS = Results(ROOT / "docs" / "reference" / "versions.json", NAMES, page)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, write or check."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"one of: {' '.join(NAMES)}")
    parser.add_argument("--page", action="store_true", help="write the page from the stored results")
    parser.add_argument("--check", action="store_true", help="exit 1 if the page is not current")
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.names if name not in NAMES]:
        parser.error(f"no target is called {unknown[0]!r}; there are: {' '.join(NAMES)}")
    if given.check:
        if RESULTS.is_current():
            return 0
        print(f"{RESULTS.page} is not current: run python -m tools.versions --page", file=sys.stderr)
        return 1
    if given.page:
        RESULTS.write_page()
        return 0
    return run_all([target for target in TARGETS if not given.names or target.name in given.names])


if __name__ == "__main__":
    sys.exit(main())
