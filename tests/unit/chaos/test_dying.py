"""A client that is killed goes on for a moment: its death is recorded before the signal and after it."""

from __future__ import annotations

from chaos.verdict import Outcome, judge

from holdfast.testing import History


def test_what_a_dying_client_still_got_is_no_silent_loss() -> None:
    def judged(*deaths: float) -> Outcome:
        history = History()
        history.crashed("c0.1", at=deaths[0])
        history.acquire("c0.1", "job", at=1.1).granted(token=1, deadline=1.6, at=1.2)
        for at in deaths[1:]:
            history.crashed("c0.1", at=at)
        history.acquire("c1.1", "job", at=8.0).granted(token=2, deadline=8.5, at=8.1)
        history.crashed("c1.1", at=8.2)
        outcome = Outcome("sqlite", "powerloss", "passed", subject="holdfast", injections=1)
        judge(
            outcome,
            history,
            traits={"tokens", "losses"},
            allowed={},
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
