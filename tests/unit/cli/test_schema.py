"""`fencelock schema`: what is printed, and what needs none."""

from __future__ import annotations

import pytest

from fencelock.cli import main

DOWN = "postgresql://me:s3cret@127.0.0.1:1/app?connect_timeout=1"


def test_the_sql_is_printed_without_a_connection(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "--print", DOWN]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert 'CREATE TABLE IF NOT EXISTS "fencelock".queue' in out
    assert "{" not in out.replace("'{}'", ""), "a mark that nobody has filled in"
    assert '-- GRANT SELECT, INSERT, UPDATE, DELETE ON "fencelock".queue TO worker;\n' in out
    assert out.endswith('-- GRANT SELECT ON ALL TABLES IN SCHEMA "fencelock" TO looker;\n')
    assert "s3cret" not in out


def test_the_schemas_name_and_the_way_to_give_the_url(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"{DOWN}&schema=locks&namespace=billing"
    texts = []
    monkeypatch.setenv("FENCELOCK_URL", url)
    for args in (["--print"], ["--print", url], ["--print", "--url", url]):
        assert main(["schema", *args]) == 0
        texts.append(capsys.readouterr().out)
    assert len(set(texts)) == 1
    assert '"locks".queue' in texts[0] and '"fencelock"' not in texts[0]
    assert main(["schema", url, "--url", DOWN]) == 64


@pytest.mark.parametrize("args", [["--print"], []])
@pytest.mark.parametrize("url", ["memory://", "redis://localhost"])
def test_a_backend_that_needs_none_says_so(
    capsys: pytest.CaptureFixture[str], url: str, args: list[str]
) -> None:
    assert main(["schema", *args, url]) == 64
    name = url.partition(":")[0]
    assert capsys.readouterr() == ("", f"fencelock: the {name} backend needs no schema\n")


def test_no_server_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", DOWN]) == 69
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("fencelock: postgresql: 127.0.0.1:1: ") and err.count("\n") == 1
    assert "s3cret" not in err


def test_wrong_schema_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "--print", f"{DOWN}&schema=a%22b"]) == 64
    out, err = capsys.readouterr()
    assert out == "" and "no plain name" in err and "s3cret" not in err
