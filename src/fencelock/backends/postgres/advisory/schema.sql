-- fencelock's session advisory locks, version {version}. The lock itself is PostgreSQL's own; here is what it lacks: a
-- number for each grant, and who it is that holds or waits.
--
-- Numbers come from a sequence, one for all names, drawn while the lock is held. A sequence costs no row version
-- and no write to disk, but after a crash it may give numbers again. So numbers are reserved in blocks: the mark, in
-- an ordinary table, says up to where, and is on disk before the first number of a block is given. The block in
-- use stands in an unlogged table, which a crash empties, as the promotion of a standby does: whoever finds it
-- empty reserves the next block and sets the sequence above the old mark. A clean restart keeps both.
-- A mark that is missing or old (a restored backup, a standby that lagged) is made up for by the time of day in
-- microseconds: numbers begin there and grow by one for each grant, and a block is so small that the clock has
-- passed it before the next crash.
--
-- A ttl is kept by the server's idle_session_timeout: a session that has locks is heard of whenever one of them is
-- renewed, and if it is silent for longer than the longest ttl of its leases, all of them are over, and the server
-- ends it.
--
-- Who holds is told by slots, one row for each lease or waiter of a session, used again and again. A row
-- says nothing by itself: it counts while its session really has the lock, or waits for it, in pg_locks.

DO $$ BEGIN  -- IF NOT EXISTS would ask for the right to create even where there is nothing to create
    IF to_regnamespace('{schema}') IS NULL THEN
        CREATE SCHEMA {schema};
    END IF;
END $$;

CREATE TABLE IF NOT EXISTS {schema}.version (version integer NOT NULL);
INSERT INTO {schema}.version SELECT {version} WHERE NOT EXISTS (SELECT 1 FROM {schema}.version);

CREATE TABLE IF NOT EXISTS {schema}.advisory_mark (
    id       integer PRIMARY KEY,
    reserved bigint NOT NULL  -- no number above was ever given
);

CREATE UNLOGGED TABLE IF NOT EXISTS {schema}.advisory_block (
    id       integer PRIMARY KEY,
    reserved bigint NOT NULL  -- the last number of the block in use
);

DO $$ BEGIN
    IF to_regclass('{schema}.advisory_tokens') IS NULL THEN
        IF current_setting('server_version_num')::integer >= 150000 THEN
            EXECUTE 'CREATE UNLOGGED SEQUENCE {schema}.advisory_tokens';
        ELSE
            EXECUTE 'CREATE SEQUENCE {schema}.advisory_tokens';
        END IF;
    END IF;
END $$;

CREATE UNLOGGED TABLE IF NOT EXISTS {schema}.advisory_slots (
    pid      integer NOT NULL,  -- the server's process: its session
    slot     integer NOT NULL,
    key      bigint,            -- null: not in use
    shared   boolean,
    waiting  smallint,          -- 0 it holds, 1 it waits in the server's queue, 2 it comes back and tries
    place    bytea,             -- namespace, a zero byte, name: both in UTF-8
    owner    text,              -- random id of the acquisition
    token    bigint,
    since    timestamptz,
    deadline timestamptz,       -- when its client gives it up unless it was renewed
    details  text,              -- client, host, pid and metadata, as JSON: for people
    PRIMARY KEY (pid, slot)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0);

-- The records of schedules, see fencelock/schedule. They are made here, so that a role which uses them need not be
-- allowed to create tables.
CREATE TABLE IF NOT EXISTS {schema}.fencelock_schedule (
    id      char(64) PRIMARY KEY,
    version bigint NOT NULL,
    body    text NOT NULL
);

-- Who has which 64-bit key in this database, and who waits.
CREATE OR REPLACE VIEW {schema}.advisory_locks AS
SELECT pid, granted, mode = 'ShareLock' AS shared, (classid::bigint << 32) | objid::bigint AS key
FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database());


-- Reserve numbers, durably, and return one: the number that was drawn, if there is one and it is reserved now.
CREATE OR REPLACE FUNCTION {schema}.advisory_reserve(_drawn bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    _mark bigint;
    _block bigint;
BEGIN
    PERFORM set_config('synchronous_commit', 'on', true);
    INSERT INTO {schema}.advisory_mark VALUES (0, 0) ON CONFLICT DO NOTHING;
    SELECT reserved INTO _mark FROM {schema}.advisory_mark WHERE id = 0 FOR UPDATE;
    SELECT reserved INTO _block FROM {schema}.advisory_block WHERE id = 0;
    IF _drawn < 1000000000000000 THEN
        _block := NULL;
    END IF;
    IF _block IS NULL THEN
        PERFORM setval('{schema}.advisory_tokens', greatest(
            _mark, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
            (SELECT last_value FROM {schema}.advisory_tokens)));
        _drawn := NULL;  -- drawn from a sequence that has no memory
    END IF;
    IF _drawn IS NULL THEN
        _drawn := nextval('{schema}.advisory_tokens');
    END IF;
    IF _block IS NULL OR _drawn > _block THEN
        _mark := greatest(_mark, _drawn) + 10000;
        UPDATE {schema}.advisory_mark SET reserved = _mark WHERE id = 0;
        INSERT INTO {schema}.advisory_block VALUES (0, _mark)
        ON CONFLICT (id) DO UPDATE SET reserved = excluded.reserved;
    END IF;
    RETURN _drawn;
END $$;


-- A session begins: whatever lies there of its process id, and of sessions that have ended, goes. Returns the process
-- id, and the last number of the block in use: as long as the session lives, numbers up to there are safe to give.
CREATE OR REPLACE FUNCTION {schema}.advisory_enter(OUT _pid integer, OUT _reserved bigint)
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM {schema}.advisory_slots WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM {schema}.advisory_slots AS one
        WHERE one.pid = pg_backend_pid()
            OR NOT EXISTS (SELECT 1 FROM pg_stat_activity AS live WHERE live.pid = one.pid)
        FOR UPDATE SKIP LOCKED));
    _pid := pg_backend_pid();
    SELECT reserved INTO _reserved FROM {schema}.advisory_block WHERE id = 0;
    IF _reserved IS NULL THEN
        PERFORM {schema}.advisory_reserve(NULL);
        SELECT reserved INTO _reserved FROM {schema}.advisory_block WHERE id = 0;
    END IF;
END $$;


-- Take the lock if nobody has it and nobody waits for it. Returns the token, or null. The slot may be another
-- session's, which has the lock shared already: then this one only asks, on behalf of that one.
CREATE OR REPLACE FUNCTION {schema}.advisory_take(
    _key bigint, _shared boolean, _pid integer, _slot integer, _place bytea, _owner text,
    _ttl double precision, _details text, _reserved bigint, _idle integer
) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    _token bigint;
    _now timestamptz;
BEGIN
    IF _shared THEN
        IF NOT pg_try_advisory_lock_shared(_key) THEN
            RETURN NULL;
        END IF;
    ELSIF NOT pg_try_advisory_lock(_key) THEN
        RETURN NULL;
    END IF;
    _token := nextval('{schema}.advisory_tokens');
    IF _token > _reserved OR _token < 1000000000000000 THEN  -- or the sequence is new
        _token := {schema}.advisory_reserve(_token);
    END IF;
    _now := clock_timestamp();
    UPDATE {schema}.advisory_slots SET
        key = _key, shared = _shared, waiting = 0, place = _place, owner = _owner, token = _token,
        since = _now, deadline = _now + make_interval(secs => _ttl), details = _details
    WHERE pid = _pid AND slot = _slot;
    IF NOT FOUND THEN
        INSERT INTO {schema}.advisory_slots VALUES
            (_pid, _slot, _key, _shared, 0, _place, _owner, _token, _now,
             _now + make_interval(secs => _ttl), _details);
    END IF;
    IF _pid <> pg_backend_pid() THEN
        PERFORM pg_advisory_unlock_shared(_key);
    END IF;
    IF _idle IS NOT NULL THEN
        PERFORM set_config('idle_session_timeout', _idle::text, false);
    END IF;
    RETURN _token;
END $$;


-- Say that somebody waits: in the server's queue (1), or by coming back (2).
CREATE OR REPLACE FUNCTION {schema}.advisory_stand(
    _key bigint, _shared boolean, _waiting integer, _slot integer, _place bytea, _owner text,
    _patience double precision, _details text
) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO {schema}.advisory_slots VALUES
        (pg_backend_pid(), _slot, _key, _shared, _waiting, _place, _owner, 0, clock_timestamp(),
         clock_timestamp() + make_interval(secs => _patience), _details)
    ON CONFLICT (pid, slot) DO UPDATE SET
        key = excluded.key, shared = excluded.shared, waiting = excluded.waiting, place = excluded.place,
        since = CASE WHEN advisory_slots.waiting > 0 AND advisory_slots.owner = excluded.owner
                THEN advisory_slots.since ELSE excluded.since END,
        owner = excluded.owner, token = 0, deadline = excluded.deadline, details = excluded.details;
$$;


-- Wait for the lock in the server's queue, at most so many milliseconds (0: for ever). Returns the token, or null if
-- the time was over or the wait was cancelled: then the session does not have the lock.
CREATE OR REPLACE FUNCTION {schema}.advisory_queue(
    _key bigint, _shared boolean, _slot integer, _ttl double precision, _limit integer,
    _reserved bigint, _idle integer
) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    _token bigint;
    _now timestamptz;
BEGIN
    PERFORM set_config('lock_timeout', _limit::text, true);
    BEGIN
        IF _shared THEN
            PERFORM pg_advisory_lock_shared(_key);
        ELSE
            PERFORM pg_advisory_lock(_key);
        END IF;
    EXCEPTION WHEN lock_not_available OR query_canceled THEN
        PERFORM {schema}.advisory_drop(_key, _shared);  -- the cancellation may have come a moment too late
        RETURN NULL;
    END;
    PERFORM set_config('lock_timeout', '0', true);
    IF _idle IS NOT NULL THEN
        PERFORM set_config('idle_session_timeout', _idle::text, false);
    END IF;
    _token := nextval('{schema}.advisory_tokens');
    IF _token > _reserved OR _token < 1000000000000000 THEN  -- or the sequence is new
        _token := {schema}.advisory_reserve(_token);
    END IF;
    _now := clock_timestamp();
    UPDATE {schema}.advisory_slots SET
        waiting = 0, token = _token, since = _now, deadline = _now + make_interval(secs => _ttl)
    WHERE pid = pg_backend_pid() AND slot = _slot;
    RETURN _token;
END $$;


-- Let go of the lock if the session has it. For those who do not know: an unlock of nothing is a warning in the log.
CREATE OR REPLACE FUNCTION {schema}.advisory_drop(_key bigint, _shared boolean) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM {schema}.advisory_locks
                   WHERE pid = pg_backend_pid() AND key = _key AND shared = _shared AND granted) THEN
        RETURN false;
    END IF;
    IF _shared THEN
        RETURN pg_advisory_unlock_shared(_key);
    END IF;
    RETURN pg_advisory_unlock(_key);
END $$;


-- Empty a slot, and let go of a shared lock if it was the last that needed it.
CREATE OR REPLACE FUNCTION {schema}.advisory_leave(_key bigint, _slot integer, _unlock boolean)
RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE {schema}.advisory_slots SET key = NULL, place = NULL, owner = NULL, details = NULL
    WHERE pid = pg_backend_pid() AND slot = _slot;
    RETURN NOT _unlock OR pg_advisory_unlock_shared(_key);
END $$;


-- Hand a shared lock to another session that has it as well.
CREATE OR REPLACE FUNCTION {schema}.advisory_move(_key bigint, _slot integer, _pid integer, _to integer)
RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM {schema}.advisory_slots WHERE pid = _pid AND slot = _to;
    UPDATE {schema}.advisory_slots SET pid = _pid, slot = _to WHERE pid = pg_backend_pid() AND slot = _slot;
    RETURN pg_advisory_unlock_shared(_key);
END $$;


-- Move the deadlines that are shown, back only where they are exact; where a ttl is null, look whether the session
-- really has the lock. Returns a letter for each: r renewed, h held, l lost.
CREATE OR REPLACE FUNCTION {schema}.advisory_renew(
    _keys bigint[], _slots integer[], _ttls double precision[], _exact boolean[], _idle integer
) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    _now timestamptz := clock_timestamp();
    _end timestamptz;
    _mine bigint[];
    _answers text := '';
BEGIN
    IF _idle IS NOT NULL THEN
        PERFORM set_config('idle_session_timeout', _idle::text, false);
    END IF;
    IF array_position(_ttls, NULL) IS NOT NULL THEN
        _mine := ARRAY(SELECT key FROM {schema}.advisory_locks WHERE pid = pg_backend_pid() AND granted);
    END IF;
    FOR _i IN 1 .. cardinality(_keys) LOOP
        IF _ttls[_i] IS NULL THEN
            _answers := _answers || CASE WHEN _keys[_i] = ANY (_mine) THEN 'h' ELSE 'l' END;
        ELSE
            _end := _now + make_interval(secs => _ttls[_i]);
            UPDATE {schema}.advisory_slots
            SET deadline = CASE WHEN _exact[_i] THEN _end ELSE greatest(deadline, _end) END
            WHERE pid = pg_backend_pid() AND slot = _slots[_i];
            _answers := _answers || 'r';
        END IF;
    END LOOP;
    RETURN _answers;
END $$;


-- End the wait of another session in the server's queue. Whatever else it does is left alone.
CREATE OR REPLACE FUNCTION {schema}.advisory_cancel(_pid integer, _key bigint) RETURNS boolean
LANGUAGE sql AS $$
    SELECT bool_or(pg_cancel_backend(pid)) FROM {schema}.advisory_locks
    WHERE pid = _pid AND key = _key AND NOT granted;
$$;


-- A role that uses this and does not own it needs:
--
-- GRANT USAGE ON SCHEMA {schema} TO worker;
-- GRANT SELECT ON {schema}.advisory_locks TO worker;
-- GRANT SELECT, INSERT, UPDATE ON {schema}.advisory_mark, {schema}.advisory_block TO worker;
-- GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.advisory_slots TO worker;
-- GRANT SELECT, UPDATE ON SEQUENCE {schema}.advisory_tokens TO worker;
-- GRANT SELECT, INSERT, UPDATE ON {schema}.fencelock_schedule TO worker;
