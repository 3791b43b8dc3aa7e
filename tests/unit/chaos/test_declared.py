"""What the guarantees declare for a fault is allowed there, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

from chaos.verdict import declared

from fencelock.backends.etcd import EtcdBackend

ETCD = EtcdBackend.from_url("etcd://a:2379").guarantees


def test_a_leader_that_comes_back_may_break_exclusion_where_its_version_does() -> None:
    assert declared("leader", ETCD) == {}
    words = declared("leader", replace(ETCD, use_for="efficiency"))
    assert list(words) == ["exclusion"]
    assert words["exclusion"].startswith("before 3.4.31 and 3.5.13 a leader that stood still")
    assert declared("partition", replace(ETCD, use_for="efficiency")) == {}
