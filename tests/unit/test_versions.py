"""What the docs say of server versions is what was run; nothing here starts a server."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools import versions  # noqa: E402

RUN = {
    "passed": 3,
    "failed": 0,
    "repeated": 1,
    "not applicable": 0,
    "failures": {},
    "repeats": {"slow": "late"},
}
IMAGES = {
    "redis": "Redis",
    "valkey/valkey": "Valkey",
    "postgres": "PostgreSQL",
    "mariadb": "MariaDB",
    "zookeeper": "ZooKeeper",
    "quay.io/coreos/etcd": "etcd",
    "consul": "Consul",
}


def record(**changed: Any) -> dict[str, Any]:
    return {
        "server": "Redis",
        "way": "",
        "date": "2026-01-02",
        "version": "8.0.6",
        "doctor": {"promise": "It promises much.", "findings": ["warning: memory: little"]},
        "conformance": {"blocking": RUN, "asyncio": RUN},
        **changed,
    }


def test_the_page_is_current() -> None:
    assert versions.main(["--check"]) == 0, "run: python -m tools.versions --page"


def test_a_page_that_is_not_current_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(versions.RESULTS, "page", tmp_path / "versions.md")
    assert versions.main(["--check"]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert versions.main(["--page"]) == 0
    assert versions.main(["--check"]) == 0


def test_the_page_tells_what_ran_and_what_did_not() -> None:
    page = versions.page({"redis@sid": record()})
    assert "| Redis | 8.0.6 | asyncio | 3 | 0 | 1 | 0 | 2026-01-02 |" in page
    assert "**Redis, 8.0.6**: It promises much.\n\n- warning: memory: little" in page
    assert "## Failures" not in page
    assert "- `mysql@sid+tls`: not run yet" in page
    assert "| MySQL | 8.0, 8.4, and every managed MySQL |" in page


def test_every_target_has_a_title() -> None:
    assert len(set(versions.NAMES)) == len(versions.TARGETS)
    assert {target.way for target in versions.TARGETS} == set(versions.WAYS)


def test_a_failure_is_on_the_page() -> None:
    failed = {**RUN, "failed": 1, "failures": {"tokens_rise": "7 after 8"}}
    page = versions.page({"redis@sid": record(conformance={"blocking": failed, "asyncio": RUN})})
    assert "- Redis 8.0.6, blocking, `tokens_rise`: 7 after 8" in page


def test_a_server_that_did_not_start_is_on_the_page() -> None:
    page = versions.page({"etcd@sid": {"server": "etcd", "way": "", "error": "etcd@sid: no such suite"}})
    assert "- `etcd@sid`: etcd@sid: no such suite" in page


@pytest.mark.parametrize(
    ("changed", "well"),
    [
        ({}, True),
        ({"conformance": {"blocking": {**RUN, "failed": 1}}}, False),
        ({"error": "no such suite"}, False),
        ({"refused": "redis: it is Redis 6.0.16, and 6.2 or newer is needed"}, True),
        ({"refused": ""}, False),
        ({"refused": "redis: ERR syntax error"}, False),
        ({"refused": "Traceback\n6.2 is needed"}, False),
    ],
)
def test_what_counts_as_a_failure(changed: dict[str, Any], well: bool) -> None:
    assert versions.is_well(record(**changed)) is well


def test_an_unknown_name_is_one_line_that_lists_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        versions.main(["redis@nosuch"])
    last = capsys.readouterr().err.splitlines()[-1]
    assert "no target is called 'redis@nosuch'; there are: redis@bullseye redis redis@sid" in last


def test_compose_offers_only_versions_that_were_run() -> None:
    images = re.findall(r"image: ([\w./]+):v?(\d+(?:\.\d+)?)", (ROOT / "compose.yaml").read_text())
    assert {name for name, _ in images} == set(IMAGES)
    ran = [each for each in versions.RESULTS.load().values() if "conformance" in each]
    for name, version in images:
        known = [each["version"] for each in ran if each["server"] == IMAGES[name]]
        assert any(f"{each}.".startswith(f"{version}.") for each in known), f"{name}:{version} was not run"


def test_nothing_failed() -> None:
    failed = [name for name, each in versions.RESULTS.load().items() if not versions.is_well(each)]
    assert not failed, f"see {versions.RESULTS.page}"


@pytest.mark.parametrize(
    "page",
    ["redis", "postgresql", "postgresql-advisory", "mysql", "mysql-getlock", "zookeeper", "etcd", "consul"],
)
def test_the_page_of_a_backend_points_to_what_was_run(page: str) -> None:
    beginning = (ROOT / "docs" / "backends" / f"{page}.md").read_text().partition("```")[0]
    assert "(../reference/versions.md)" in beginning
