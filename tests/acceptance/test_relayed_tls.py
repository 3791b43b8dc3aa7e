"""Conformance over TLS, by the name of the server: no certificate is for the address of a relay."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from tests.conformance.rows import certificate
from tools.servers import ports, start

from fencelock.testing.conformance import run


def test_a_certificate_that_is_not_for_the_relays_is_a_reason_and_no_failure(tmp_path: Path) -> None:
    settings = certificate(tmp_path, "DNS:localhost")
    port = ports.take()
    try:
        with start("redis", settings={**settings, "tls-port": str(port)}):
            url = f"rediss://localhost:{port}?ssl_ca_certs={quote(settings['tls-cert-file'])}"
            names = ["lock_has_one_holder", "replies_that_are_cut"]
            results = run(url, only=names, flavours=["asyncio"]).results
    finally:
        ports.give_back(port)
    found = {result.check.name: result for result in results}
    assert found["lock_has_one_holder"].outcome == "passed"
    relayed = found["replies_that_are_cut"]
    assert relayed.outcome == "not applicable"
    assert "needs relays, and gets no connection through one: redis" in relayed.detail
    assert "certificate" in relayed.detail
