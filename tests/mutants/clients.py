"""Mistakes on the client's side: the core, the command line, the guards and the keys of idempotency."""

from __future__ import annotations

from patch import Conform, Test, patch

# The core --------------------------------------------------------------------------------------

patch(
    "validity_counts_from_the_reply",
    "The time that a request took is forgotten.",
    Conform("memory", ("validity_counts_from_the_request",)),
    "after a reply that came late",
    (
        "core/acquire.py",
        "return Hold(self.request, self.terms, answer.token, self.sent, answer.validity, now)\n",
        "return Hold(self.request, self.terms, answer.token, now, answer.validity, now)\n",
    ),
    quick=True,
)
patch(
    "a_thread_starts_though_its_start_was_interrupted",
    "Its starter starts another: two do the same work.",
    Test("tests/unit/runtime/test_threads.py::test_what_was_interrupted_does_not_start"),
    "and started",
    ("runtime/threads.py", "        fate.starts = False\n", "        fate.starts = True\n"),
)
patch(
    "clock_stands_on_the_wall",
    "Deadlines are kept on the wall clock, which an operator can set.",
    Test("tests/acceptance/test_client_clock.py"),
    "True True True",
    (
        "runtime/clock.py",
        "    now = functools.partial(time.clock_gettime, time.CLOCK_BOOTTIME)\n",
        "    now = functools.partial(time.clock_gettime, time.CLOCK_REALTIME)\n",
    ),
)
patch(
    "fork_shares_the_lease",
    "A forked child takes its parent's leases for its own.",
    Conform("sqlite", ("fork",)),
    "of the parent's lease in the child is True",
    (
        "core/session.py",
        '            hold.state = LOST\n            hold.reason = "it belongs',
        '            hold.reason = "it belongs',
    ),
)
patch(
    "fork_shares_identities",
    "A forked child hands out the random ids that its parent does.",
    Test("tests/unit/runtime/test_ids.py"),
    "assert not ({",
    ("runtime/ids.py", "import os\n", "import random\n\n_random = random.Random()\n"),
    ("runtime/ids.py", "    return os.urandom(16).hex()\n", "    return _random.randbytes(16).hex()\n"),
)
patch(
    "cancelled_acquire_leaves_its_place",
    "Whoever is cancelled while its request is on its way has the lock, and does not know.",
    Conform("redis", ("a_reply_in_flight_is_not_forgotten",), ("asyncio",)),
    "is free: not within",
    (
        "core/acquire.py",
        "                await session.cleanups.undo(request)\n        finally:\n",
        "                pass\n        finally:\n",
    ),
)
patch(
    "withdrawal_is_not_repeated",
    "An acquire that was given up, and arrives after its withdrawal, keeps its place.",
    Test("tests/unit/core/test_acquire.py::test_a_withdrawal_is_repeated_where_a_step_got_no_answer"),
    "(cleanup,) = bench.session.cleanups.all()",
    ("core/cleanup.py", "if cleanup.in_doubt and not cleanup.was_answered and", "if False and"),
)
patch(
    "lease_called_lost_leaves_its_record",
    "A lease that a renewal finds expired keeps its record, which lives again when the clock is set back.",
    Test("tests/acceptance/test_server_clock.py::test_nor_beside_one_that_is_held[redis-blocking-verify]"),
    "fencelock.errors.AcquireTimeout",
    (
        "core/renew.py",
        'it expired there, or was force-released")\n',
        'it expired there, or was force-released", gone=True)\n',
    ),
)
patch(
    "loss_does_not_cancel_the_block",
    "The body of an `async with` goes on though its lease is lost.",
    Conform("memory", ("block_raises_lease_lost", "force_release_reaches_the_block"), ("asyncio",)),
    "the block was not done",
    ("runtime/asyncio.py", 'task.cancel("lease lost") if still_wanted() else None', "None"),
)

# The command line --------------------------------------------------------------------------------

patch(
    "run_releases_before_the_child_was_reaped",
    "`fencelock run` gives the lock back when CMD has ended, while what it started still runs.",
    Test("tests/acceptance/test_run.py::test_process_in_a_session_of_its_own"),
    "the lock was free while processes",
    (
        "cli/supervise.py",
        "            self.wait_status = int(value)\n",
        "            self.wait_status = int(value)\n            self.gone = True\n",
    ),
)
# Guards --------------------------------------------------------------------------------------------

patch(
    "guard_lets_older_tokens_pass",
    "The rule of all guards lets a token pass that is one less than the newest.",
    Test("tests/unit/fencing/test_gate.py::test_the_rule"),
    "StaleToken",
    ("fencing/rule.py", "    if newest > token:\n", "    if newest > token + 1:\n"),
    quick=True,
)
patch(
    "guard_refuses_the_second_write_of_a_holder",
    "An equal token is refused: a holder can write once.",
    Test("tests/unit/fencing/test_gate.py::test_the_rule"),
    "StaleToken",
    ("fencing/rule.py", "    if newest > token:\n", "    if newest >= token > 0 and newest:\n"),
)
patch(
    "guard_forgets_the_higher_token",
    "In SQL the mark becomes whatever token came last, and the refusal is all that is left of the rule.",
    Test("tests/unit/fencing/test_table.py::test_the_rule"),
    "DID NOT RAISE StaleToken",
    (
        "fencing/table.py",
        'DO UPDATE SET fence = max(mark.fence, excluded.fence) RETURNING fence"',
        'DO UPDATE SET fence = excluded.fence RETURNING fence"',
    ),
)
patch(
    "guard_compares_tokens_as_text",
    "In Redis 9 is newer than 10.",
    Test("tests/acceptance/test_fencing_redis.py::test_nine_is_older_than_ten"),
    "StaleToken",
    ("fencing/lua/head.lua", "(#token < #mark or (#token == #mark and token < mark))", "(token < mark)"),
)
patch(
    "guard_compares_tokens_as_floats",
    "In Redis tokens are compared as numbers of Lua, which have 53 bits.",
    Test("tests/acceptance/test_fencing_redis.py::test_tokens_are_exact_beyond_53_bits"),
    "DID NOT RAISE StaleToken",
    (
        "fencing/lua/head.lua",
        "(#token < #mark or (#token == #mark and token < mark))",
        "(tonumber(token) < tonumber(mark))",
    ),
)

# Idempotency -----------------------------------------------------------------------------------------

patch(
    "idempotency_completes_without_a_token",
    "In SQL an attempt that was overtaken stores its result over its successor's.",
    Test("tests/unit/idempotency/test_store.py::test_a_paused_caller_cannot_store_over_its_successor"),
    "StaleToken",
    (
        "idempotency/table.py",
        '    if int(row["token"]) != attempt.token:\n',
        '    if int(row["token"]) < 0:\n',
    ),
    quick=True,
)
patch(
    "idempotency_completes_without_a_token_on_redis",
    "The same in Redis.",
    Test("tests/acceptance/test_idempotency_stores.py::test_a_store_on_redis"),
    "DID NOT RAISE StaleToken",
    ("idempotency/lua/settle.lua", "if old[1] ~= ARGV[1] then\n  return old[1]\nend\n", ""),
)
