"""The lowest versions that pyproject.toml declares: `make floors` in a short form, with locks on two servers.

It has an environment of its own, which stays; building it takes a minute.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tools import floors
from tools.servers import start

LISTED = """
import importlib.metadata as m, json
print(json.dumps({d.name: d.version for d in m.distributions()}))
"""
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def environment() -> Path:
    return floors.environment()


def test_every_extra_has_a_smoke_test() -> None:
    assert set(floors.EXTRAS) == set(floors.floors()) - {"all"}
    assert {how.row for how in floors.EXTRAS.values() if how.row} | {"sqlite"} == set(floors.ROWS)
    proofs = [proof for how in floors.EXTRAS.values() for proof in how.proofs]
    assert [proof for proof in proofs if not (floors.ROOT / proof).is_file()] == []
    assert [extra for extra, how in floors.EXTRAS.items() if not (how.row or how.proofs)] == ["consul"]


def test_the_environment_has_exactly_the_lowest_versions(environment: Path) -> None:
    told = subprocess.run([environment / "bin" / "python", "-c", LISTED], capture_output=True, check=True)
    installed = {name.lower().replace("_", "-"): version for name, version in json.loads(told.stdout).items()}
    for packages in floors.floors().values():
        for name, version in packages.items():
            found = installed[name.lower()].split(".")
            assert found[: len(version.split("."))] == version.split("."), name
            assert set(found[len(version.split(".")) :]) <= {"0"}, name


@pytest.mark.parametrize("extra", floors.EXTRAS)
def test_an_extra_works_at_its_floor(environment: Path, extra: str) -> None:
    assert floors.smoke(environment, extra) == ""


@pytest.mark.parametrize("extra", ["redis", "postgres"])
def test_a_lock_is_taken_in_both_flavours(environment: Path, extra: str) -> None:
    with start(extra) as group:
        assert floors.smoke(environment, extra, group.url) == ""


# The tool --------------------------------------------------------------------------------


def test_a_smoke_test_tells_what_is_wrong(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = floors.Extra(("fencelock.no_such_module",))
    monkeypatch.setitem(floors.EXTRAS, "redis", broken)
    assert "No module named 'fencelock.no_such_module'" in floors.smoke(environment, "redis")
    with start("redis") as group:
        alive = floors.Extra((), (group.url,))
        monkeypatch.setitem(floors.EXTRAS, "redis", alive)
        assert "a server answered" in floors.smoke(environment, "redis")


def test_an_extra_that_fails_fails_the_run(
    environment: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(floors, "EXTRAS", {"consul": floors.Extra(("fencelock.no_such_module",))})
    assert floors.main(["--short"]) == 1
    assert "FAILED: ModuleNotFoundError" in capsys.readouterr().out


def test_a_proof_that_failed_or_did_not_run_counts_as_failed(tmp_path: Path) -> None:
    report = tmp_path / "tests.xml"
    cases = {
        ("tests.acceptance.test_a", "test_one"): "",
        ("tests.acceptance.test_b", "test_one"): "",
        ("tests.acceptance.test_b", "test_two"): "<failure/>",
        ("tests.acceptance.test_c", "test_one"): "<skipped/>",
        ("tests.unit.test_docs", "test_examples_run[docs/a.md]"): "",
        ("tests.unit.test_docs", "test_examples_run[docs/b.md]"): "<error/>",
    }
    told = [f'<testcase classname="{a}" name="{b}">{inner}</testcase>' for (a, b), inner in cases.items()]
    report.write_text(f"<testsuite>{''.join(told)}</testsuite>")
    assert floors._passed(report) == {"tests/acceptance/test_a.py", "docs/a.md"}
    assert floors._passed(tmp_path / "none.xml") == set()


@pytest.mark.parametrize("need", ["redis", "redis<6", "redis~=5.0"])
def test_a_package_without_a_lowest_version_is_one_line(tmp_path: Path, need: str) -> None:
    project = tmp_path / "pyproject.toml"
    project.write_text(f"[project.optional-dependencies]\nredis = [{need!r}]\n")
    with pytest.raises(floors.Failed, match="has no lowest version") as caught:
        floors.floors(project)
    assert caught.value.status == 64 and "\n" not in str(caught.value)


def test_a_version_that_is_not_to_be_had_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(floors, "FOLDER", tmp_path / "floors")
    monkeypatch.setattr(floors, "_build", lambda folder: floors._must("false"))
    assert floors.main(["--short"]) == 69
    told = capsys.readouterr().err
    assert told.startswith("floors: the lowest versions cannot be installed: ") and told.count("\n") == 1
    assert not (tmp_path / "floors" / "stamp").exists()


def test_it_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Path] = []
    monkeypatch.setattr(floors, "FOLDER", tmp_path / "floors")
    monkeypatch.setattr(floors, "_build", built.append)
    assert floors.environment() == floors.environment() == tmp_path / "floors" / "environment"
    assert len(built) == 1
    monkeypatch.setattr(floors, "constraints", lambda: ["redis==4.0"])
    floors.environment()
    assert len(built) == 2
