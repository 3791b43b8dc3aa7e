"""Mistakes in the queues that live in one server: SQLite, Redis, PostgreSQL, MySQL."""

# ruff: noqa: E501 (texts as they stand in the files)
from __future__ import annotations

from patch import Conform, Test, patch

# SQLite --------------------------------------------------------------------------------------

patch(
    "sqlite_counter_deleted_with_the_lock",
    "The counter is the largest row that is left, so a name that is free starts to count anew.",
    Conform("sqlite", ("tokens_rise_across_releases",)),
    " follows ",
    (
        "backends/sqlite/store.py",
        '''NEXT = "coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'queue'), -1) + 1"''',
        '''NEXT = "coalesce((SELECT max(token) FROM queue), 0) + 1"''',
    ),
    ("backends/sqlite/store.py", "self._check_token(cursor.lastrowid)", "cursor.lastrowid"),
    (
        "backends/sqlite/store.py",
        "return self._check_token(db.execute(QUEUE_UP, row).lastrowid)",
        "return db.execute(QUEUE_UP, row).lastrowid",
    ),
    ("backends/sqlite/store.py", "return self._given(db, cursor.lastrowid)", "return cursor.lastrowid"),
    ("backends/sqlite/store.py", "            self._given(db, answer.token)\n", "            pass\n"),
    quick=True,
)
patch(
    "sqlite_renewal_does_not_look_at_the_deadline",
    "A renewal moves the deadline of a row that has expired and was not swept yet.",
    Test("tests/acceptance/test_late_renewals.py -k sqlite"),
    "<Outcome.LOST",
    (
        "backends/sqlite/store.py",
        'max(deadline, ?) WHERE token = ? AND owner = ? AND deadline > ?"\nRENEW_EXACTLY',
        'max(deadline, ?) WHERE token = ? AND owner = ? AND ? > 0"\nRENEW_EXACTLY',
    ),
)
patch(
    "sqlite_release_by_name",
    "A release removes whoever stands first, not the owner who asks.",
    Conform("sqlite", ("a_late_clean_up_spares_the_successor",)),
    "the successor's lease is gone",
    (
        "backends/sqlite/store.py",
        'LEAVE = "DELETE FROM queue WHERE token = ? AND owner = ?"',
        'LEAVE = "DELETE FROM queue WHERE ? > 0 AND name = (SELECT name FROM queue WHERE owner = ?)"',
    ),
    (
        "backends/sqlite/store.py",
        'ABANDON = "DELETE FROM queue WHERE namespace = ? AND name = ? AND owner = ?"',
        "ABANDON = \"DELETE FROM queue WHERE namespace = ? AND name = ? AND ? <> ''\"",
    ),
)
patch(
    "sqlite_waiter_without_expiry",
    "A waiter that died stands in the queue for a day.",
    Conform("sqlite", ("a_dead_waiter_delays_by_a_few_seconds",), ("blocking",)),
    "behind a dead waiter",
    (
        "backends/sqlite/store.py",
        "        deadline = now + patience(request.ttl)\n",
        "        deadline = now + 86400\n",
    ),
)

# Redis ---------------------------------------------------------------------------------------

patch(
    "redis_token_is_the_time",
    "The token is the server's clock, without a counter behind it: set back, it gives old tokens.",
    Test("tests/acceptance/test_redis_wiped.py::test_a_server_clock_that_jumps_back_and_forth"),
    "At index ",
    (
        "backends/redis/lua/acquire.lua",
        "  if not last or (#last == 16 and last < drawn) then return drawn end\n",
        "  if true then return drawn end\n",
    ),
)
patch(
    "redis_counter_deleted_with_the_lock",
    "The counter starts at 1 for a name that is free.",
    Conform("redis", ("tokens_rise_across_releases",)),
    "token 1 follows",
    (
        "backends/redis/lua/acquire.lua",
        "if not queue then\n  local token = draw()",
        "if not queue then\n  local token = '0000000000000001'",
    ),
)
patch(
    "redis_grant_is_not_recognised",
    "A request whose grant was lost, and which is sent again, stands behind itself.",
    Conform("redis", ("connections_reset_after_a_request",), ("blocking",)),
    "is free: not within",
    (
        "backends/redis/lua/acquire.lua",
        "if mine and not place then",
        "if mine and (not place or string.sub(mine, 52, 52) == 'k') then",
    ),
)
patch(
    "redis_renewal_acquires_again",
    "A renewal that finds no record makes one.",
    Conform("redis", ("the_backend_does_not_revive", "force_release_breaks_the_holder")),
    "'renewed', expected 'lost'",
    (
        "backends/redis/lua/renew.lua",
        "    tell(place, 0)\n",
        "    if ttl ~= '' then\n"
        "      local mine = string.format('%016.0f', now + ttl) .. ' ' .. ARGV[first + 1] .. ' ' .. drawn .. ' ke1 none {}'\n"
        "      redis.call('HSET', key, 'queue', owner, 'holders', '1', owner, mine)\n"
        "      renewed = renewed + 1\n"
        "    else\n"
        "      tell(place, 0)\n"
        "    end\n",
    ),
)
patch(
    "redis_extension_never_shortens",
    "An extension to a shorter ttl leaves the server the longer one.",
    Conform("redis", ("a_crash_after_a_shorter_extend_frees_the_lock_soon",), ("blocking",)),
    "not acquired within",
    ("backends/redis/renewals.py", 'b"=%d" if exact', 'b"%d" if exact'),
)
patch(
    "redis_key_outlives_a_shorter_extension",
    "An extension to a shorter ttl leaves the key its expiry.",
    Test("tests/acceptance/test_redis_deadlines.py::test_a_shorter_extension_shortens_the_key"),
    "assert 10 < ",
    ("backends/redis/lua/renew.lua", "      keep_exactly(key, owner, later)\n", ""),
)
patch(
    "redis_release_by_name",
    "A release deletes the lock, whoever holds it.",
    Conform("redis", ("a_late_clean_up_spares_the_successor",)),
    "the successor's lease is gone",
    (
        "backends/redis/lua/leave.lua",
        "if not mine or (ARGV[2] ~= '' and string.sub(mine, 18, 33) ~= ARGV[2]) then return 0 end",
        "if not mine then return redis.call('DEL', key) end",
    ),
)
patch(
    "redis_waiter_without_expiry",
    "A waiter that died stands in the queue for a day.",
    Conform("redis", ("a_dead_waiter_delays_by_a_few_seconds",), ("blocking",)),
    "behind a dead waiter",
    (
        "backends/redis/lua/acquire.lua",
        "    local record = string.format('%.0f ', now + ARGV[4]) .. token",
        "    local record = string.format('%.0f ', now + 86400000000) .. token",
    ),
    (
        "backends/redis/lua/acquire.lua",
        "local deadline = stamp(now + ARGV[4])\n",
        "local deadline = stamp(now + 86400000000)\n",
    ),
)
patch(
    "redis_last_come_first_served",
    "A newcomer stands right behind the holder.",
    Conform("redis", ("waiters_of_one_client_are_served_in_order",)),
    "the order of service is [7",
    (
        "backends/redis/lua/acquire.lua",
        "'queue', queue .. me, me, record)",
        "'queue', first .. me .. string.sub(queue, 33), me, record)",
    ),
)
patch(
    "redis_one_permit_too_many",
    "A semaphore admits one more than its limit.",
    Conform("redis", ("semaphore_limit", "semaphore_under_load")),
    "beyond the limit",
    ("backends/redis/lua/queue.lua", "holders < limit_of(head)", "holders <= limit_of(head)"),
)

# PostgreSQL ----------------------------------------------------------------------------------

patch(
    "postgres_counter_deleted_with_the_lock",
    "Tokens count from the largest row of the name that is left.",
    Conform("postgresql", ("tokens_rise_across_releases",)),
    "token 1 follows",
    (
        "backends/postgres/schema.sql",
        "    SET token = greatest(token + 1, _known + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)\n"
        "    WHERE bucket = _bucket RETURNING token INTO _drawn;",
        "    SET token = (SELECT coalesce(max(queue.token), 0) + 1 FROM {schema}.queue WHERE place = _place)\n"
        "    WHERE bucket = _bucket RETURNING token INTO _drawn;",
    ),
)
patch(
    "postgres_renewal_does_not_look_at_the_deadline",
    "A renewal moves the deadline of a row that has expired and was not swept yet.",
    Test("tests/acceptance/test_late_renewals.py -k postgresql"),
    "<Outcome.LOST",
    (
        "backends/postgres/schema.sql",
        "held = true\n            WHERE place = _places[_i] AND token = _tokens[_i] AND owner = _owners[_i] AND deadline > _now;",
        "held = true\n            WHERE place = _places[_i] AND token = _tokens[_i] AND owner = _owners[_i];",
    ),
)
patch(
    "postgres_release_by_name",
    "A release empties the queue of the name.",
    Conform("postgresql", ("a_late_clean_up_spares_the_successor",)),
    "the successor's lease is gone",
    (
        "backends/postgres/schema.sql",
        "        DELETE FROM {schema}.queue WHERE place = _place AND token = _token AND owner = _owner;\n    END IF;\n    _there",
        "        DELETE FROM {schema}.queue WHERE place = _place;\n    END IF;\n    _there",
    ),
    (
        "backends/postgres/schema.sql",
        "        DELETE FROM {schema}.queue WHERE place = _place AND owner = _owner;\n    ELSE",
        "        DELETE FROM {schema}.queue WHERE place = _place;\n    ELSE",
    ),
)
patch(
    "postgres_grant_is_not_durable",
    "A grant is answered before it is on disk: after a crash of the server another one has the lock too.",
    Test("tests/acceptance/test_grants_survive.py"),
    "(verify)",
    (
        "backends/postgres/schema.sql",
        "        PERFORM set_config('synchronous_commit', 'local', true);  -- a grant is durable\n    END IF;",
        "        NULL;\n    END IF;\n    PERFORM set_config('synchronous_commit', 'off', true);",
    ),
)
patch(
    "postgres_token_is_drawn_again",
    "A request whose row a crash has lost may get the token that it had.",
    Test("tests/acceptance/test_postgres_crash_cases.py -k settle"),
    "two hold it",
    (
        "backends/postgres/schema.sql",
        "greatest(token + 1, _known + 1, (extract",
        "greatest(token + 1, (extract",
    ),
)
patch(
    "postgres_push_for_a_lost_row_is_believed",
    "A push is believed, though a step of the request got no reply.",
    Test("tests/acceptance/test_postgres_crash_cases.py -k acquire"),
    "two hold it",
    (
        "backends/postgres/turns.py",
        "            if pushed and waiting.is_sure:\n",
        "            if pushed:\n",
    ),
)
patch(
    "postgres_broken_lease_comes_back",
    "A lease is broken before that is on disk: a crash of the server brings it back.",
    Test("tests/acceptance/test_postgres_crash_cases.py -k does_not_come_back"),
    "its holder may renew it",
    (
        "backends/postgres/schema.sql",
        "        PERFORM set_config('synchronous_commit', 'local', true);  -- the broken lease cannot come back",
        "        NULL;  -- the broken lease cannot come back",
    ),
)
patch(
    "postgres_last_come_first_served",
    "The lock is handed to whoever came last.",
    Conform("postgresql", ("waiters_of_one_client_are_served_in_order",)),
    "the order of service is [7",
    (
        "backends/postgres/schema.sql",
        "WHERE place = _place AND deadline > _now ORDER BY token LIMIT 1;\n    IF NOT FOUND THEN\n        RETURN;",
        "WHERE place = _place AND deadline > _now ORDER BY held DESC, token DESC LIMIT 1;\n    IF NOT FOUND THEN\n        RETURN;",
    ),
)

# MySQL and MariaDB ---------------------------------------------------------------------------

patch(
    "mysql_counter_deleted_with_the_lock",
    "Tokens count from the largest row of the name that is left.",
    Conform("mysql", ("tokens_rise_across_releases",)),
    "token 1 follows",
    (
        "backends/mysql/sql/schema.sql",
        "        GREATEST(token + 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))))\n",
        "        (SELECT COALESCE(MAX(q.token), 0) + 1 FROM PREFIXqueue AS q WHERE q.place = p_place))\n",
    ),
)
patch(
    "mysql_gives_up_without_a_token",
    "A late step of an older client finds the bucket as it was when it was sent.",
    Test("tests/acceptance/test_mysql_older.py -k late"),
    "== (3, 0)",
    (
        "backends/mysql/sql/schema.sql",
        "    UPDATE PREFIXbuckets SET token = token + 1 WHERE bucket = p_bucket;\n",
        "    UPDATE PREFIXbuckets SET token = token WHERE bucket = p_bucket;\n",
    ),
)
patch(
    "mysql_renewal_does_not_look_at_the_deadline",
    "A renewal moves the deadline of a row that has expired and was not swept yet.",
    Test("tests/acceptance/test_late_renewals.py -k mysql"),
    "<Outcome.LOST",
    (
        "backends/mysql/sql/schema.sql",
        "    IF v_deadline IS NULL OR v_deadline <= v_now THEN\n",
        "    IF v_deadline IS NULL THEN\n",
    ),
)
