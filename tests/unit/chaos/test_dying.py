"""A client that is killed goes on for a moment: its death is recorded before the signal and after it."""

from __future__ import annotations

from typing import Any

from chaos.faults.processes import Kill
from chaos.verdict import Outcome, _never_struck, judge

from fencelock.testing import History


def test_what_a_dying_client_still_got_is_no_silent_loss() -> None:
    def judged(*deaths: float) -> Outcome:
        history = History()
        history.crashed("c0.1", at=deaths[0])
        history.acquire("c0.1", "job", at=1.1).granted(token=1, deadline=1.6, at=1.2)
        for at in deaths[1:]:
            history.crashed("c0.1", at=at)
        history.acquire("c1.1", "job", at=8.0).granted(token=2, deadline=8.5, at=8.1)
        history.crashed("c1.1", at=8.2)
        outcome = Outcome("sqlite", "powerloss", "passed", subject="fencelock", injections=1)
        judge(
            outcome,
            history,
            traits={"tokens", "losses"},
            allowed={},
            causes=[],
            lanes=1,
            line=False,
            ttl=0.5,
            healed=8.0,
            until=9.0,
            bound=5.0,
            names=["job"],
            teeth=False,
        )
        return outcome

    (violation,) = judged(1.0).violations
    assert violation.startswith("loss: 'job': ran out")
    twice = judged(1.0, 1.3)
    assert twice.violations == []
    assert twice.counts["crashes"] == 2  # clients, not records


def test_a_death_counts_if_it_took_something_along() -> None:
    history = History()
    history.acquire("holds", "job", at=1.0).granted(token=1, deadline=9.0, at=1.1)
    history.acquire("waits", "job", at=1.2)
    done = history.acquire("idle", "other", at=1.0)
    done.granted(token=2, deadline=9.0, at=1.1)
    done.release(at=1.2)
    done.released(at=1.3)
    for client in ("holds", "waits", "idle", "unborn"):
        history.crashed(client, at=2.0)
        history.crashed(client, at=2.1)
    stage: Any = None
    assert Kill().count(stage, history) == 2


def test_a_fault_that_never_struck_fails_our_run_and_blames_no_peer() -> None:
    ours = Outcome("redis", "full", "passed")
    _never_struck(ours)
    assert (ours.status, ours.violations) == ("failed", ["teeth: the fault has never struck"])
    peer = Outcome("zookeeper", "full", "failed", subject="kazoo", violations=["available: 'job'"])
    _never_struck(peer)
    assert (peer.status, peer.violations, peer.why) == ("not run", [], "the fault has never struck")
