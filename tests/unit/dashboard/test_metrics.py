"""The page on metrics lists those of the dashboard, as they are."""

from __future__ import annotations

from pathlib import Path

from fencelock.dashboard.labels import label_of
from fencelock.dashboard.metrics import METRICS

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"


def test_the_page_is_current() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| `fencelock_backend_")]
    own = [line for line in lines if "fencelock_backend_errors" not in line]
    assert own == [
        f"| `{each.name}` | {', '.join(f'`{label}`' for label in each.labels)} | {each.about} |"
        for each in METRICS
    ]


def test_a_label_has_no_secret() -> None:
    urls = {
        "redis://app:s3cr3t@cache:6379/0?namespace=shop": "redis://cache:6379/0",
        "redis://:s3cr3t@cache": "redis://cache",
        "redlock://u:s3cr3t@a:1,u:s3cr3t@b:2,c:3": "redlock://a:1,b:2,c:3",
        "redis://app:s3c,r3t@cache:6379": "redis://cache:6379",
        "postgresql://app@db/prod?password=s3cr3t": "postgresql://db/prod",
        "sqlite:///var/lib/locks.db?mkdir=yes": "sqlite:///var/lib/locks.db",
    }
    for url, label in urls.items():
        told = label_of("b0", url, None)
        assert told["label"] == label
        assert "s3c" not in str(told) and "r3t" not in str(told)
    assert label_of("b0", "redis://h?namespace=shop", None)["namespace"] == "shop"
    assert label_of("b0", "redis://h?namespace=shop", "other")["namespace"] == "other"
