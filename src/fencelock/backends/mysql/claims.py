"""Claims: which request of a client tries, waits for or holds which lock, and on which session.

GET_LOCK is re-entrant: asked twice on one connection it grants twice. So of all requests of a client for
one lock only one at a time has a *claim* on it, and only a claim is ever brought before the server.

    TRYING ──► HELD ──► LEAVING      on the shared session: GET_LOCK(…, 0), which never waits
    WAITING ─►                       on a session that holds nothing: GET_LOCK(…, seconds); it keeps the lock

After the grant the token is drawn, on the same connection and while it holds the lock, so a later holder
draws a larger one. A session that breaks loses its claims: the server frees them when it notices.

The server knows no ttl. So a claim whose deadline has passed is released from here; and a session tells
the server to close it after its longest ttl of silence, so that a client which was stopped or cut off
does not hold a lock for ever. While the client is well, it is heard three times as often.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import ceil, inf
from typing import Any

from fencelock.backends.mysql.board import Answer, Board, Job, Reply, Session
from fencelock.backends.mysql.failures import Kind, Unusable, kind_of
from fencelock.core.ports import Grant, Outcome, Renewal
from fencelock.runtime import clock

__all__ = ["BUSY", "NEED", "POLL", "Asked", "Desk"]

BUSY, NEED, POLL = "busy", "need a connection", "too many wait: poll"
TRYING, WAITING, HELD, LEAVING = "trying", "waiting", "held", "leaving"

LONGEST_SILENCE = 60.0
CHUNK = 100
TURNS = 20
SCAN_EVERY = 0.05
NOW = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"


class Asked:
    """What a job is about: one request."""

    __slots__ = ("bucket", "lock", "owner", "seconds", "ttl")

    def __init__(self, owner: str, lock: str, bucket: int, ttl: float, seconds: float = 0.0) -> None:
        self.owner = owner
        self.lock = lock
        self.bucket = bucket
        self.ttl = ttl
        self.seconds = seconds


class Claim:
    """The one request of this client that deals with a lock."""

    __slots__ = (
        "asked",
        "deadline",
        "is_given_up",
        "jobs",
        "leavers",
        "others",
        "session",
        "state",
        "token",
        "ttl",
        "turns",
    )

    def __init__(self, asked: Asked, state: str, session: Session, job: Job) -> None:
        self.asked = asked
        self.state = state
        self.session = session
        self.jobs = [job]
        self.leavers: list[Job] = []
        self.others: list[Job] = []
        """Requests for the same lock that came while this one asked: they are told what came of it."""
        self.token = 0
        self.ttl = asked.ttl
        self.turns = 0
        self.deadline = inf
        self.is_given_up = False


class Desk(Board):
    """The claims of one client."""

    def __init__(self, lost: Callable[[str, str], None], tokens: str, most: int, *, fractions: bool) -> None:
        """`tokens` is the table, `most` how many sessions; `fractions`: the server waits parts of seconds."""
        super().__init__()
        self._lost = lost
        self._tokens = tokens
        self._most = most
        self.fractions = fractions
        self._claims: dict[str, Claim] = {}
        self._owners: dict[str, Claim] = {}
        self._crowds: dict[str, list[Job]] = {}
        self._shared: Session | None = None
        self._idle: list[Session] = []
        self._scan_at = inf
        self._is_woken = False

    def has_answered(self, since: float) -> bool:
        """Whether the server has answered since then on the connection that is for tries. From any thread."""
        shared = self._shared
        return shared is not None and shared.heard >= since

    # Jobs -------------------------------------------------------------------------------------

    def do_add(self, job: Job) -> None:
        super().do_add(job)
        session: Session = job.result
        if self._shared is None:
            self._shared = session
        elif len(self.sessions) <= self._most + 1:
            self._idle.append(session)
        else:
            self.part(session)

    def do_acquire(self, job: Job) -> None:
        asked: Asked = job.subject
        claim = self._claims.get(asked.lock)
        if claim is None:
            session = self._shared
            if session is None and self._idle:
                session = self._shared = self._idle.pop()
            if session is None:
                job.finish(NEED)
                return
            claim = self._enter(asked, TRYING, session, job)
            self._keep(session)
            session.say(f"SELECT GET_LOCK('{asked.lock}', 0)", partial(self._asked, claim))
        elif claim.asked.owner != asked.owner and claim.state is TRYING:
            claim.others.append(job)  # whether it is busy, the server has yet to say
        elif claim.asked.owner != asked.owner or claim.state is LEAVING:
            job.finish(BUSY)
        elif claim.state is HELD:
            claim.deadline = max(claim.deadline, clock.now() + asked.ttl)
            job.finish(Grant(claim.token, asked.ttl))
        else:
            claim.jobs.append(job)

    def do_wait(self, job: Job) -> None:
        asked: Asked = job.subject
        claim = self._claims.get(asked.lock)
        if self._is_woken:
            job.finish()
        elif claim is None:
            if not self._idle:
                job.finish(NEED if len(self.sessions) <= self._most else POLL)
                return
            session = self._idle.pop()
            claim = self._enter(asked, WAITING, session, job)
            self._keep(session)
            seconds = f"{asked.seconds:.3f}" if self.fractions else f"{max(1, ceil(asked.seconds))}"
            say = f"SELECT GET_LOCK('{asked.lock}', {seconds})"
            session.say(say, partial(self._asked, claim), asked.seconds + 10.0)
        elif claim.asked.owner != asked.owner or claim.state is LEAVING:
            crowd = [other for other in self._crowds.get(asked.lock, ()) if not other.dead]
            self._crowds[asked.lock] = [*crowd, job]
        elif claim.state is HELD:
            job.finish(Grant(claim.token, asked.ttl))
        else:
            claim.jobs.append(job)

    def do_wake(self, job: Job) -> None:
        """Let no request wait any more: its caller is answered, and the server's wait is ended.

        With the claim its crowd goes, too: so it does when one that is held is released.
        """
        self._is_woken = True
        for claim in list(self._claims.values()):
            if claim.state is WAITING:
                claim.is_given_up = True
                for waiting in claim.jobs:
                    waiting.finish()
                if self._shared is not None:
                    self._shared.say(f"KILL QUERY {claim.session.number}", _ignore)
        job.finish()

    def do_release(self, job: Job) -> None:
        claim = self._owners.get(job.subject.owner)
        if claim is None or claim.state is not HELD:
            job.finish(False)
            return
        self._leave(claim, job)

    def do_abandon(self, job: Job) -> None:
        claim = self._owners.get(job.subject.owner)
        if claim is None:
            job.finish()
        elif claim.state is HELD:
            self._leave(claim, job)
        elif claim.state is WAITING:
            claim.is_given_up = True  # it ends in a second at most, and gives back what it got
            job.finish()
        else:
            claim.is_given_up = True
            claim.leavers.append(job)

    def do_renew(self, job: Job) -> None:
        renewals: Sequence[Renewal]
        renewals, outcomes = job.subject
        now = clock.now()
        parts: dict[Session, list[int]] = {}
        for index, renewal in enumerate(renewals):
            claim = self._owners.get(renewal.request.owner)
            live = claim is not None and claim.state is HELD and claim.deadline > now
            if claim is not None and live and claim.token == renewal.token:
                parts.setdefault(claim.session, []).append(index)
            else:
                outcomes[index] = Outcome.LOST
        left = [sum(-(-len(part) // CHUNK) for part in parts.values())]
        if not left[0]:
            job.finish()
        for session, part in parts.items():
            for start in range(0, len(part), CHUNK):
                self._renew(session, job, part[start : start + CHUNK], left, now)

    def _renew(self, session: Session, job: Job, part: list[int], left: list[int], sent: float) -> None:
        renewals, outcomes = job.subject
        claims = [self._owners[renewals[index].request.owner] for index in part]
        asked = ", ".join(f"IS_USED_LOCK('{claim.asked.lock}') <=> CONNECTION_ID()" for claim in claims)

        def answered(reply: Reply) -> None:
            for place, (index, claim) in enumerate(zip(part, claims, strict=True)):
                renewal: Renewal = renewals[index]
                if isinstance(reply, Answer):
                    held = bool(reply.rows[0][place]) and claim.state is HELD
                    if not held:
                        outcomes[index] = Outcome.LOST
                        if claim.state is HELD:
                            self._remove(claim)
                    elif renewal.extend:
                        self._prolong(claim, sent, renewal)
                        outcomes[index] = Outcome.RENEWED
                    else:
                        outcomes[index] = Outcome.HELD
                elif session.is_broken:
                    outcomes[index] = Outcome.LOST
            left[0] -= 1
            if not left[0]:
                job.finish()

        session.say(f"SELECT {asked}", answered)

    def _prolong(self, claim: Claim, sent: float, renewal: Renewal) -> None:
        """A renewal only moves the deadline forward, an extension by the holder also back."""
        end, ttl = sent + renewal.ttl, renewal.ttl
        if not renewal.exact:
            end, ttl = max(claim.deadline, end), max(claim.ttl, ttl)
        claim.deadline = end
        self._scan_at = min(self._scan_at, end)
        if ttl != claim.ttl:
            claim.ttl = ttl
            self._keep(claim.session)

    # What becomes of a claim ---------------------------------------------------------------------

    def _enter(self, asked: Asked, state: str, session: Session, job: Job) -> Claim:
        claim = Claim(asked, state, session, job)
        self._claims[asked.lock] = self._owners[asked.owner] = claim
        session.claims.add(claim)
        return claim

    def _asked(self, claim: Claim, reply: Reply) -> None:
        """The answer to GET_LOCK."""
        if isinstance(reply, Unusable):
            self._fail(claim, reply)
        elif reply.rows[0][0] == 1:
            self._draw(claim)
        else:
            self._remove(claim)

    def _draw(self, claim: Claim) -> None:
        bucket = claim.asked.bucket
        claim.session.say(
            f"INSERT INTO {self._tokens} (bucket, token) VALUES ({bucket}, LAST_INSERT_ID({NOW})) "
            f"ON DUPLICATE KEY UPDATE token = LAST_INSERT_ID(GREATEST(token + 1, {NOW}))",
            partial(self._drawn, claim),
        )

    def _drawn(self, claim: Claim, reply: Reply) -> None:
        if isinstance(reply, Unusable):
            claim.turns += 1
            if kind_of(reply) is Kind.CONFLICT and claim.turns < TURNS:
                self._draw(claim)
                return
            if not claim.session.is_broken:
                claim.session.say(f"DO RELEASE_LOCK('{claim.asked.lock}')", _ignore)
            self._fail(claim, reply)
            return
        ttl = claim.asked.ttl
        claim.state, claim.token = HELD, reply.number
        claim.deadline = clock.now() + ttl  # later than the holder's own, which counts from its request
        self._scan_at = min(self._scan_at, claim.deadline)
        self._tell_others(claim)
        if claim.is_given_up or all(job.dead for job in claim.jobs):
            self._leave(claim)
            return
        for job in claim.jobs:
            job.finish(Grant(claim.token, ttl))
        claim.jobs = []

    def _keep(self, session: Session) -> None:
        """Let the server close the session when it is silent for longer than its leases may last.

        Said before the lock is taken, not after: a client may be cut off in between.
        """
        wanted = ceil(min(LONGEST_SILENCE, max(claim.ttl for claim in session.claims))) + 1
        if session.kept != wanted:
            session.kept = wanted
            session.say(f"SET SESSION wait_timeout = {wanted}", _ignore)

    def _leave(self, claim: Claim, job: Job | None = None) -> None:
        claim.state = LEAVING
        if job is not None:
            claim.leavers.append(job)
        claim.session.say(f"SELECT RELEASE_LOCK('{claim.asked.lock}')", partial(self._left, claim))

    def _left(self, claim: Claim, reply: Reply) -> None:
        if isinstance(reply, Unusable):
            claim.turns += 1
            if not claim.session.is_broken and claim.turns < TURNS:
                self._leave(claim)
            else:
                self._fail(claim, reply)
            return
        for job in claim.leavers:
            job.finish(reply.rows[0][0] == 1)
        self._remove(claim)

    def _tell_others(self, claim: Claim) -> None:
        for job in claim.others:
            job.finish(BUSY)

    def _fail(self, claim: Claim, error: Unusable) -> None:
        for job in [*claim.jobs, *claim.others, *(one for one in claim.leavers if one.kind == "release")]:
            job.finish(error=error)
        self._remove(claim)

    def _remove(self, claim: Claim) -> None:
        """The client has nothing to do with the lock any more."""
        asked, session = claim.asked, claim.session
        if self._claims.get(asked.lock) is claim:
            del self._claims[asked.lock]
        if self._owners.get(asked.owner) is claim:
            del self._owners[asked.owner]
        claim.state = LEAVING
        session.claims.discard(claim)
        self._tell_others(claim)
        for job in claim.jobs:
            job.finish(BUSY if job.kind == "acquire" else None)
        for job in claim.leavers:
            job.finish()
        for job in self._crowds.pop(asked.lock, ()):
            job.finish()
        unused = not session.claims and session is not self._shared and session not in self._idle
        if unused and not session.is_broken:
            self._idle.append(session)

    # The clock, and the end -----------------------------------------------------------------------

    def next_look(self) -> float:
        pings = (session.heard + session.kept / 3 for session in self.sessions if _is_quiet(session))
        return min(super().next_look(), self._scan_at, min(pings, default=inf))

    def look(self, now: float) -> None:
        super().look(now)
        for session in list(self.sessions):
            if _is_quiet(session) and session.heard + session.kept / 3 <= now:
                session.say("DO 0", _ignore)
        if self._scan_at <= now:
            held = [claim for claim in self._owners.values() if claim.state is HELD]
            for claim in held:
                if claim.deadline <= now:
                    self._leave(claim)
            later = min((claim.deadline for claim in held if claim.deadline > now), default=inf)
            self._scan_at = max(later, now + SCAN_EVERY)

    def broken(self, session: Session, reason: str) -> None:
        if session is self._shared:
            self._shared = None
        if session in self._idle:
            self._idle.remove(session)
        held = [claim for claim in session.claims if claim.state is HELD]
        super().broken(session, reason)
        for claim in held:
            self._remove(claim)
            self._lost(claim.asked.owner, reason)


def _is_quiet(session: Session) -> bool:
    return bool(session.kept and session.claims and session.is_idle)


def _ignore(reply: Any) -> None:
    """Nobody waits for this answer."""
