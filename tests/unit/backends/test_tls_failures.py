"""A server that ends a TLS handshake may be going down: its clients ask again. Other TLS errors last."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any

import pytest

from fencelock.backends.consul.failures import FAILURES
from fencelock.backends.mysql.failures import unreachable as mysql
from fencelock.backends.redis.failures import unreachable as redis
from fencelock.backends.zookeeper.failures import unreachable as zookeeper


@pytest.mark.parametrize("unreachable", [FAILURES.unreachable, mysql, redis, zookeeper])
@pytest.mark.parametrize(
    ("error", "transient"),
    [
        (ssl.SSLEOFError(8, "EOF occurred in violation of protocol"), True),
        (ssl.SSLError(1, "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] certificate required"), False),
        (ssl.SSLCertVerificationError(1, "certificate verify failed"), False),
    ],
)
def test_only_the_end_of_a_handshake_passes(
    unreachable: Callable[..., Any], error: ssl.SSLError, transient: bool
) -> None:
    error.reason = "CERTIFICATE"  # which only the ssl module itself sets
    if isinstance(error, ssl.SSLCertVerificationError):
        error.verify_message = "it has expired"
    failure = unreachable("host:1", error, tls=True)
    assert failure.transient is transient
    assert str(failure).count("\n") == 0
