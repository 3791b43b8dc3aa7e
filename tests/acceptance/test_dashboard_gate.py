"""Who may use the dashboard: each refusal, over real HTTP."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from cli_helpers import running
from crew import wait_until
from dashboard_desk import TOKEN, Stream, dashboard, log_in

import fencelock
from fencelock.cli import main
from fencelock.dashboard import gate, replies

DATA = ("/api/stream", "/api/lock?backend=b0&name=x", "/api/audit", "/metrics")
CHANGES = ("/api/break", "/api/examine")
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite://{tmp_path_factory.mktemp('locks') / 'locks.db'}"


@pytest.fixture(scope="module")
def guarded(url: str) -> Iterator[str]:
    with dashboard(url, token=TOKEN) as client:
        yield str(client.base_url)


@pytest.fixture(scope="module")
def opened(url: str) -> Iterator[str]:
    with dashboard(url) as client:
        yield str(client.base_url)


@pytest.fixture
def client(guarded: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=guarded, timeout=30) as client:
        yield client


@pytest.fixture
def browser(opened: str) -> Iterator[httpx.Client]:
    """Somebody on this machine, where nobody need log in."""
    with httpx.Client(base_url=opened, timeout=30) as client:
        yield client


@pytest.fixture
def lease(url: str) -> Iterator[fencelock.Lease]:
    with fencelock.Client(url) as locks:
        lease = locks.lock("invoice:42", ttl=60).acquire()
        yield lease
        lease.release()


def order(lease: fencelock.Lease, **changed: Any) -> dict[str, Any]:
    return {"backend": "b0", "name": lease.name, "owners": [lease.owner], "reason": "stuck", **changed}


# Without a token --------------------------------------------------------------------------


@pytest.mark.parametrize("path", DATA)
def test_without_a_token_nothing_is_told(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 401 and "log in" in answer.text
    told_in_url = client.get(path, params={"token": TOKEN, "backend": "b0", "name": "x"})
    assert told_in_url.status_code == 401, "a URL is no place for it"


@pytest.mark.parametrize("path", CHANGES)
def test_without_a_token_nothing_is_done(client: httpx.Client, path: str, lease: fencelock.Lease) -> None:
    assert client.post(path, json=order(lease)).status_code == 401
    assert lease.verify()


def test_the_page_sends_to_the_login_form(client: httpx.Client) -> None:
    answer = client.get("/")
    assert answer.status_code == 303 and answer.next_request is not None
    assert answer.next_request.url.path == "/login"
    assert client.get("/healthz").text == "ok\n"


def test_a_program_with_the_token_is_in(client: httpx.Client, lease: fencelock.Lease) -> None:
    assert client.get("/metrics", headers=BEARER).status_code == 200
    assert client.get("/api/lock?backend=b0&name=invoice:42", headers=BEARER).json()["name"] == "invoice:42"
    answer = client.post("/api/break", headers=BEARER, json=order(lease))
    assert answer.status_code == 200 and answer.json()["broken"][0]["owner"] == lease.owner
    assert not lease.verify()


def test_logging_in_and_out(client: httpx.Client) -> None:
    refused = log_in(client, token="wrong-but-long")
    assert refused.status_code == 401 and "that is not right" in refused.text
    assert "wrong-but-long" not in refused.text
    before = dict(client.cookies)
    answer = log_in(client, token=TOKEN)
    assert answer.status_code == 303 and answer.next_request is not None
    assert answer.next_request.url.path == "/"
    cookie = answer.headers["set-cookie"]
    assert (
        all(word in cookie for word in ("HttpOnly", "SameSite=strict", "Max-Age=")) and "Secure" not in cookie
    )
    assert dict(client.cookies) != before, "not the form's own cookie"
    assert client.get("/").status_code == 200 and client.get("/api/audit").status_code == 200
    stream = Stream(client)
    hello = stream.wait("hello")
    assert hello["user"] == "token" and hello["csrf"]
    assert client.post("/api/examine", json={"backend": "b0"}, headers=stream.csrf).status_code == 202
    assert client.post("/logout", headers={"Origin": "http://evil.example"}).status_code == 403
    assert client.post("/logout").status_code == 303
    assert client.get("/api/audit").status_code == 401
    wait_until(lambda: stream.ended, "the stream of a session that has ended")


def test_behind_tls_the_cookie_is_for_tls_only(client: httpx.Client) -> None:
    csrf = re.search(r'name="csrf" value="(\w+)"', client.get("/login").text)
    assert csrf is not None
    origin = str(client.base_url).replace("http://", "https://")
    answer = client.post("/login", data={"csrf": csrf[1], "token": TOKEN}, headers={"Origin": origin})
    assert answer.status_code == 303 and "Secure" in answer.headers["set-cookie"]


def test_a_login_form_from_elsewhere_is_refused(client: httpx.Client) -> None:
    assert client.post("/login", data={"token": TOKEN}).status_code == 403
    assert client.post("/login", data={"token": TOKEN, "csrf": "0" * 64}).status_code == 403
    elsewhere = {"Origin": "http://evil.example"}
    csrf = re.search(r'name="csrf" value="(\w+)"', client.get("/login").text)
    assert csrf is not None
    fields = {"token": TOKEN, "csrf": csrf[1]}
    assert client.post("/login", data=fields, headers=elsewhere).status_code == 403
    assert client.get("/api/audit").status_code == 401


def test_user_and_password(url: str) -> None:
    with dashboard(url, user="ops", password="correct horse") as client:
        assert 'data-mode="password"' in client.get("/login").text
        assert client.get("/api/audit", auth=("ops", "wrong")).status_code == 401
        assert client.get("/api/audit", auth=("ops", "correct horse")).status_code == 200
        assert log_in(client, user="ops", password="correct horse").status_code == 303
        stream = Stream(client)
        assert stream.wait("hello")["user"] == "ops"


def test_guesses_are_limited(url: str) -> None:
    with dashboard(url, token=TOKEN) as client:
        statuses = []
        for number in range(gate.FAILURES + 2):
            forged = {"X-Forwarded-For": f"10.0.0.{number}", "Authorization": "Bearer wrong"}
            answer = client.get("/api/audit", headers=forged)
            statuses.append(answer.status_code)
        assert statuses == [401] * gate.FAILURES + [429] * 2
        assert int(answer.headers["retry-after"]) > 0
        refused = log_in(client, token=TOKEN)
        assert refused.status_code == 429 and int(refused.headers["retry-after"]) > 0
        assert "too many" in refused.text
        assert client.get("/healthz").status_code == 200


# From elsewhere ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "forged",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
def test_a_forged_origin_is_refused(
    browser: httpx.Client, lease: fencelock.Lease, forged: dict[str, str]
) -> None:
    stream = Stream(browser)
    for path in CHANGES:
        answer = browser.post(path, json=order(lease), headers={**stream.csrf, **forged})
        assert answer.status_code == 403 and "another origin" in answer.json()["error"]
    assert browser.get("/api/audit", headers=forged).status_code == 403
    assert lease.verify()


@pytest.mark.parametrize("path", ["/", "/login", "/assets/style.css", *DATA])
def test_a_forged_host_is_refused(browser: httpx.Client, path: str) -> None:
    answer = browser.get(path, headers={"Host": "rebound.example"})
    assert answer.status_code == 403 and "--allow-host" in answer.text
    assert browser.get("/healthz", headers={"Host": "10.1.2.3"}).status_code == 200


def test_a_reverse_proxy_may_call_it_by_a_name_of_its_own(url: str) -> None:
    with dashboard(url, hosts=["locks.example"]) as client:
        assert client.get("/api/audit", headers={"Host": "locks.example"}).status_code == 200
        assert client.get("/api/audit", headers={"Host": "other.example"}).status_code == 403


def test_without_the_token_of_its_session_nothing_is_done(
    browser: httpx.Client, lease: fencelock.Lease, opened: str, url: str
) -> None:
    stream = Stream(browser)
    stream.wait("hello")
    with httpx.Client(base_url=opened, timeout=30) as other:
        others = Stream(other).csrf
    with dashboard(url) as before:  # as if it had been restarted
        stale = Stream(before).csrf
    for headers in ({}, {"X-CSRF-Token": "0" * 64}, others, stale):
        answer = browser.post("/api/break", json=order(lease), headers=headers)
        assert answer.status_code == 403 and "reload" in answer.json()["error"]
    with httpx.Client(base_url=opened) as nobody:
        assert nobody.post("/api/break", json=order(lease), headers=stream.csrf).status_code == 403
    assert lease.verify()
    assert browser.post("/api/break", json=order(lease), headers=stream.csrf).status_code == 200


# What makes no sense ----------------------------------------------------------------------


def test_read_only(url: str, lease: fencelock.Lease) -> None:
    with dashboard(url, read_only=True) as client:
        stream = Stream(client)
        assert stream.wait("hello")["read_only"] is True
        answer = client.post("/api/break", json=order(lease), headers=stream.csrf)
        assert answer.status_code == 403 and answer.json() == {"error": "this dashboard is read-only"}
        assert client.post("/api/examine", json={"backend": "b0"}, headers=stream.csrf).status_code == 202
    assert lease.verify()


def test_orders_that_make_no_sense(browser: httpx.Client, lease: fencelock.Lease) -> None:
    stream = Stream(browser)

    def told(status: int, **changed: Any) -> str:
        answer = browser.post("/api/break", json=order(lease, **changed), headers=stream.csrf)
        assert answer.status_code == status, answer.text
        return str(answer.json()["error"])

    assert "say why" in told(422, reason=" ")
    assert "500 are possible" in told(422, reason="x" * 501)
    assert "owner ids" in told(422, owners="all")
    assert "owners" in told(422, owners=[])
    assert "which lock" in told(422, name=None)
    assert "no such backend" in told(404, backend="b9")
    assert "no such backend" in told(404, backend=["b0"])
    assert "gone already" in told(409, owners=["0" * 32])
    for body, status in ((b"{", 400), (b"[]", 400), (b"[" * 9999, 400), (b" " * (replies.LARGEST + 1), 413)):
        assert browser.post("/api/break", content=body, headers=stream.csrf).status_code == status
    assert browser.get("/api/lock?backend=b0&name=nobody").status_code == 404
    assert browser.get("/api/break").status_code == 405
    assert lease.verify()


@pytest.mark.parametrize("name", ["..%2fapp.py", "%2e%2e/app.py", "none.js", ".", "a%00.js", "..%5capp.py"])
def test_only_the_pages_own_files_are_given(browser: httpx.Client, name: str) -> None:
    answer = browser.get(f"/assets/{name}")
    assert answer.status_code == 404 and "import" not in answer.text


def test_every_answer_has_the_headers(browser: httpx.Client) -> None:
    for path in ("/", "/assets/style.css", "/api/audit", "/metrics", "/nowhere", "/api/lock", "/healthz"):
        answer = browser.get(path)
        for name, value in replies.HEADERS.items():
            assert answer.headers[name] == value, (path, name)
    assert "unsafe" not in replies.CSP and "default-src 'none'" in replies.CSP
    etag = browser.get("/assets/style.css").headers["etag"]
    assert browser.get("/assets/style.css", headers={"If-None-Match": etag}).status_code == 304


def test_a_fault_of_ours_has_the_headers_and_tells_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with dashboard(url) as client:
        monkeypatch.setattr("fencelock.dashboard.audit.Audit.lines", lambda self: 1 / 0)
        answer = client.get("/api/audit")
        assert answer.status_code == 500 and "its log says why" in answer.json()["error"]
        assert answer.headers["content-security-policy"] == replies.CSP


# The command ------------------------------------------------------------------------------


@pytest.fixture
def refused(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    monkeypatch.setenv("FENCELOCK_URL", url)

    def command(*args: str) -> str:
        assert main(["dashboard", *args]) == 64
        told = capsys.readouterr()
        assert told.out == "" and len(told.err.splitlines()) == 1, told.err
        return told.err

    return command


def test_what_is_refused_at_the_start(refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "short").write_text("abc\n")
    (tmp_path / "empty").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert "already in use" in refused("--port", port, "--audit-log", str(tmp_path / "audit"))
    assert "lets others in" in refused("--host", "0.0.0.0")
    assert "too short" in refused("--host", "0.0.0.0", "--token-file", str(tmp_path / "short"))
    assert "is empty" in refused("--token-file", str(tmp_path / "empty"))
    assert "cannot be read" in refused("--token-file", str(tmp_path / "none"))
    assert "give both" in refused("--user", "ops")
    assert "audit log" in refused("--audit-log", str(tmp_path / "short" / "below"))
    assert "known schemes" in refused("--url", "nonsense://x")
    assert "no scheme" in refused("--url", "app:s3cr3t@host")
    assert "too short" in refused("--interval", "1ms", "--audit-log", str(tmp_path / "audit"))
    assert "there is no file" in refused("--jobs", f"sqlite:///{tmp_path / 'no.db'}")


def test_a_missing_package_says_what_to_install() -> None:
    code = "import sys; sys.modules['uvicorn'] = None; import fencelock.cli as c; sys.exit(c.main())"
    command = [sys.executable, "-c", code, "dashboard"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 64 and "pip install 'fencelock[dashboard]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_open_to_others_with_a_token_and_nothing_secret_is_said(url: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    secret = "redis://app:s3cr3t-pw@127.0.0.1:1/0"
    args = ["--host", "0.0.0.0", "--port", "0", "--token-file", str(tmp_path / "token")]
    args += ["--audit-log", str(tmp_path / "audit"), "--url", url, "--url", secret]
    told = ""
    with running("", "dashboard", *args) as process:
        assert process.stdout is not None and process.stderr is not None
        address = process.stdout.readline().split()[-1].replace("0.0.0.0", "127.0.0.1")
        with httpx.Client(base_url=address, timeout=30) as client:
            assert client.get("/api/audit").status_code == 401
            told += log_in(client, token="a-wrong-token").text
            assert log_in(client, token=TOKEN).status_code == 303
            stream = Stream(client)
            trouble = stream.wait("picture", lambda data: data["b"] == "b1")["trouble"]
            assert "127.0.0.1:1" in trouble
            told += str(stream.frames) + client.get("/").text + client.get("/metrics").text
            process.terminate()
            assert process.wait(30) == 0, "it ends cleanly, though a browser listens"
            wait_until(lambda: stream.ended, "the stream ends")
        told += process.stderr.read() + process.stdout.read() + (tmp_path / "audit").read_text()
    assert "Traceback" not in told
    for word in (TOKEN, "s3cr3t-pw", "a-wrong-token"):
        assert word not in told
