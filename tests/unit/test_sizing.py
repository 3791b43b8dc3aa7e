"""The page on sizing has the figures that were measured, and no others."""

from __future__ import annotations

import json

import pytest
from bench import sizing
from bench.suites import SUITES
from bench.suites.sizing import PLACES, WHAT

DATA = json.loads(sizing.KEPT.read_text(encoding="utf-8"))


def test_page_and_picture_are_current() -> None:
    assert sizing.main(["--check"]) == 0


def test_every_backend_that_is_measured_is_there() -> None:
    assert [one["kind"] for one in DATA["backends"]] == list(PLACES) == list(WHAT) == list(sizing.NAMES)
    assert "sizing" in SUITES


def test_figures_are_plausible() -> None:
    for one in DATA["backends"]:
        assert one["leases"] >= 1000 and one["waiters"] >= 100, "small sizes are for trying"
        assert 10 < sizing.rate(one["pair"]) < 1_000_000
        assert sizing.rate(one["renewal"]) > sizing.rate(one["pair"]), "renewals go in batches"
        for key in ("server_lock", "client_lease", "client_waiter"):
            assert 0 < one[key] < 1_000_000, (one["kind"], key)
        # Of a waiter in Redis the server's own memory moves by more than that: the page says "not seen".
        assert 0 <= one["server_waiter"] < 1_000_000
        assert one["server_waiter"] > 0 or one["kind"] == "redis"


@pytest.mark.parametrize(("client", "server", "said"), [(2e-5, 1e-5, "client"), (1e-5, 2e-5, "server")])
def test_who_is_full_first(client: float, server: float, said: str) -> None:
    told = sizing.full_first({"client_processor": client, "server_processor": server})
    assert told.startswith(f"the {said}, at 50,000/s")
