-- fencelock's lease table, version {version}. The queue is the lock: one queue for each name, ordered by token,
-- and its holders are its admitted prefix. Every step is one call of one function, so it happens as a
-- whole or not at all, and a client that stops in the middle of one holds nothing.
--
-- A bucket's row is at once the latch that steps on its names take first, and the counter that tokens are
-- drawn from. Not a sequence: after a crash a sequence may give numbers again.
--
-- Grants, renewals and forced releases are durable when they are answered. What may be lost in a crash of the
-- server is what harms nobody: that somebody has left (its row then goes by its deadline), and that the next in
-- line was admitted (it stands in the queue, durably, before it believes a push; nobody passes it).
--
-- Time is clock_timestamp(), read after the latch was taken: time spent in waiting for it must not make
-- anybody's deadline look further away than it is.

DO $$ BEGIN  -- IF NOT EXISTS would ask for the right to create even where there is nothing to create
    IF to_regnamespace('{schema}') IS NULL THEN
        CREATE SCHEMA {schema};
    END IF;
END $$;

CREATE TABLE IF NOT EXISTS {schema}.version (version integer NOT NULL);
INSERT INTO {schema}.version SELECT {version} WHERE NOT EXISTS (SELECT 1 FROM {schema}.version);

CREATE TABLE IF NOT EXISTS {schema}.buckets (
    bucket integer PRIMARY KEY,
    token  bigint NOT NULL  -- the last one given in this bucket
) WITH (fillfactor = 10, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);

-- Tokens begin at the time of day in microseconds, so those of a schema that was dropped and made again go on
-- above the old ones.
INSERT INTO {schema}.buckets
SELECT number, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
FROM generate_series(0, {buckets} - 1) AS number
ON CONFLICT DO NOTHING;

CREATE TABLE IF NOT EXISTS {schema}.queue (
    place    bytea NOT NULL,        -- namespace, a zero byte, name: both in UTF-8
    token    bigint NOT NULL,
    owner    text NOT NULL,         -- random id of the acquisition
    mode     text NOT NULL,         -- exclusive, shared, permit
    slots    integer NOT NULL,      -- how many of its kind may hold at once; 0: any number
    held     boolean NOT NULL,      -- it was told that it holds
    deadline timestamptz NOT NULL,  -- when it counts as gone
    since    timestamptz NOT NULL,  -- when it came, or began to hold
    channel  text NOT NULL,         -- where its client listens for pushes; '' where it cannot
    details  text NOT NULL,         -- client, host, pid and metadata, as JSON: for people
    PRIMARY KEY (place, token)
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0,
        autovacuum_vacuum_insert_threshold = -1);

-- The records of schedules, see fencelock/schedule. They are made here, so that a role which uses them need not be
-- allowed to create tables.
CREATE TABLE IF NOT EXISTS {schema}.fencelock_schedule (
    id      char(64) PRIMARY KEY,
    version bigint NOT NULL,
    body    text NOT NULL
);


-- Whoever stands in the admitted prefix and was not told so is told.
CREATE OR REPLACE FUNCTION {schema}.hand_over(_place bytea, _now timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    _row record;
    _head record;
    _count integer := 0;
BEGIN
    SELECT token, owner, mode, slots, held, channel INTO _head FROM {schema}.queue
    WHERE place = _place AND deadline > _now ORDER BY token LIMIT 1;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF _head.mode = 'exclusive' THEN
        IF NOT _head.held THEN
            UPDATE {schema}.queue SET held = true, since = _now WHERE place = _place AND token = _head.token;
            IF _head.channel <> '' THEN
                PERFORM pg_notify(_head.channel, 'g' || _head.owner || _head.token);
            END IF;
        END IF;
        RETURN;
    END IF;
    FOR _row IN
        SELECT token, owner, mode, held, channel FROM {schema}.queue
        WHERE place = _place AND deadline > _now ORDER BY token
    LOOP
        EXIT WHEN _row.mode <> _head.mode OR _count = _head.slots AND _head.slots > 0;
        _count := _count + 1;
        IF NOT _row.held THEN
            UPDATE {schema}.queue SET held = true, since = _now WHERE place = _place AND token = _row.token;
            IF _row.channel <> '' THEN
                PERFORM pg_notify(_row.channel, 'g' || _row.owner || _row.token);
            END IF;
        END IF;
    END LOOP;
END $$;


-- Stand in the queue, and perhaps be admitted. Returns the token if it is; else "b", the own token, the seconds
-- after which a holder may have expired, and the first holder; or "l" and a semaphore's limit, if another
-- one was asked for. With a null channel nothing is left behind unless it is admitted. _known is the token
-- that the request stands in the queue with; 0: it is new; null: it may stand there, its reply was lost.
CREATE OR REPLACE FUNCTION {schema}.acquire(
    _bucket integer, _place bytea, _owner text, _mode text, _slots integer,
    _ttl double precision, _patience double precision, _channel text, _details text, _known bigint
) RETURNS text
LANGUAGE plpgsql SET lock_timeout = '1200ms' SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    _now timestamptz;
    _drawn bigint;
    _mine bigint;
    _head record;
    _before integer;
    _others integer;
    _limit integer;
    _soonest timestamptz;
    _is_admitted boolean;
BEGIN
    -- Not below the time of day: a draw that a crash has lost is not made a second time. The clock may have been set
    -- back, so never the request's own token again either: a push for that one may still be on its way.
    UPDATE {schema}.buckets
    SET token = greatest(token + 1, _known + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
    WHERE bucket = _bucket RETURNING token INTO _drawn;
    IF _drawn IS NULL THEN
        RAISE EXCEPTION 'bucket % of fencelock''s schema is missing', _bucket USING ERRCODE = 'HF001';
    END IF;
    _now := clock_timestamp();
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'local', true);  -- a grant is durable
    END IF;

    IF _known > 0 THEN
        SELECT token INTO _mine FROM {schema}.queue
        WHERE place = _place AND token = _known AND owner = _owner AND deadline > _now;
    END IF;

    SELECT * INTO _head FROM {schema}.queue WHERE place = _place ORDER BY token LIMIT 1;
    IF _head.deadline <= _now THEN
        DELETE FROM {schema}.queue WHERE place = _place AND deadline <= _now;
        PERFORM {schema}.hand_over(_place, _now);
        SELECT * INTO _head FROM {schema}.queue WHERE place = _place ORDER BY token LIMIT 1;
    END IF;
    IF _head.token IS NULL THEN
        INSERT INTO {schema}.queue VALUES
            (_place, _drawn, _owner, _mode, _slots, true, _now + make_interval(secs => _ttl), _now,
             coalesce(_channel, ''), _details);
        RETURN _drawn;
    END IF;

    IF _known IS NULL THEN
        SELECT min(token) INTO _mine FROM {schema}.queue
        WHERE place = _place AND owner = _owner AND deadline > _now;
    END IF;
    _soonest := _head.deadline;
    IF _mode = 'exclusive' THEN
        _is_admitted := _mine = _head.token;
    ELSE
        SELECT count(*), count(*) FILTER (WHERE mode <> _mode) INTO _before, _others FROM {schema}.queue
        WHERE place = _place AND deadline > _now AND token < coalesce(_mine, _drawn);
        _is_admitted := _before = 0 OR _others = 0 AND (_head.slots = 0 OR _before < _head.slots);
    END IF;
    IF _mode = 'permit' AND _mine IS NULL THEN
        SELECT slots INTO _limit FROM {schema}.queue
        WHERE place = _place AND mode = 'permit' AND slots <> _slots AND deadline > _now LIMIT 1;
        IF FOUND THEN
            RETURN 'l' || _limit;
        END IF;
    END IF;

    IF _is_admitted THEN
        IF _mine IS NULL THEN
            INSERT INTO {schema}.queue VALUES
                (_place, _drawn, _owner, _mode, _slots, true, _now + make_interval(secs => _ttl), _now,
                 coalesce(_channel, ''), _details);
            RETURN _drawn;
        END IF;
        -- A deadline never moves back: a step that was given up may still arrive, after an extension.
        UPDATE {schema}.queue SET
            deadline = CASE WHEN held THEN greatest(deadline, _now + make_interval(secs => _ttl))
                       ELSE _now + make_interval(secs => _ttl) END,
            since = CASE WHEN held THEN since ELSE _now END,
            held = true
        WHERE place = _place AND token = _mine;
        IF NOT FOUND THEN  -- somebody has removed it at this moment, without the latch
            RAISE EXCEPTION 'try again' USING ERRCODE = 'serialization_failure';
        END IF;
        RETURN _mine;
    END IF;

    PERFORM set_config('synchronous_commit', 'off', true);  -- see settle
    IF _channel IS NULL THEN
        IF _mine IS NOT NULL THEN
            DELETE FROM {schema}.queue WHERE place = _place AND token = _mine;
        END IF;
    ELSIF _mine IS NULL THEN
        _mine := _drawn;
        INSERT INTO {schema}.queue VALUES
            (_place, _drawn, _owner, _mode, _slots, false, _now + make_interval(secs => _patience), _now,
             _channel, _details);
    ELSE
        UPDATE {schema}.queue SET deadline = _now + make_interval(secs => _patience), channel = _channel
        WHERE place = _place AND token = _mine;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'try again' USING ERRCODE = 'serialization_failure';
        END IF;
    END IF;
    IF _head.mode <> 'exclusive' THEN
        SELECT min(deadline) INTO _soonest FROM {schema}.queue
        WHERE place = _place AND held AND deadline > _now;
    END IF;
    RETURN concat_ws(' ', 'b', coalesce(_mine, 0), extract(epoch FROM _soonest - _now),
        _head.owner, _head.token, _head.mode, _head.slots, extract(epoch FROM _head.since),
        extract(epoch FROM _now - _head.since), extract(epoch FROM _head.deadline - _now), _head.details);
END $$;


-- Make everything durable that was answered before; return whether the request was handed the lock, null if it
-- does not stand in the queue any more. A waiter calls it before it believes a push. (It looks, since the
-- server may have crashed meanwhile and never heard of it.)
CREATE OR REPLACE FUNCTION {schema}.settle(_place bytea, _token bigint, _owner text) RETURNS boolean
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'local', true);
    END IF;
    PERFORM pg_logical_emit_message(true, 'fencelock', '');  -- something to be flushed, and all before it
    RETURN (SELECT held FROM {schema}.queue WHERE place = _place AND token = _token AND owner = _owner);
END $$;


-- Leave the queue; with a null token, whatever the owner has there. Returns whether there was something.
CREATE OR REPLACE FUNCTION {schema}.leave(_bucket integer, _place bytea, _owner text, _token bigint) RETURNS boolean
LANGUAGE plpgsql SET lock_timeout = '1200ms' SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    _there boolean;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM 1 FROM {schema}.buckets WHERE bucket = _bucket FOR NO KEY UPDATE;
    IF _token IS NULL THEN
        DELETE FROM {schema}.queue WHERE place = _place AND owner = _owner;
    ELSE
        DELETE FROM {schema}.queue WHERE place = _place AND token = _token AND owner = _owner;
    END IF;
    _there := FOUND;
    PERFORM {schema}.hand_over(_place, clock_timestamp());
    RETURN _there;
END $$;


-- Move the deadlines of leases whose own has not passed; where a ttl is null, only look. A deadline moves back
-- only where it is exact: steps may overtake each other. Returns a letter for each: r renewed, h held, l lost.
-- Takes no latch: a row is deleted or renewed, never both. Whoever asks was told that it holds; that the row
-- says so may be what a crash has lost.
CREATE OR REPLACE FUNCTION {schema}.renew(
    _places bytea[], _tokens bigint[], _owners text[], _ttls double precision[], _exact boolean[]
) RETURNS text
LANGUAGE plpgsql SET lock_timeout = '1200ms' SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    _now timestamptz := clock_timestamp();
    _end timestamptz;
    _answers text := '';
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'local', true);
    END IF;
    FOR _i IN 1 .. cardinality(_tokens) LOOP
        IF _ttls[_i] IS NULL THEN
            PERFORM 1 FROM {schema}.queue
            WHERE place = _places[_i] AND token = _tokens[_i] AND owner = _owners[_i] AND deadline > _now;
            _answers := _answers || CASE WHEN FOUND THEN 'h' ELSE 'l' END;
        ELSE
            _end := _now + make_interval(secs => _ttls[_i]);
            UPDATE {schema}.queue
            SET deadline = CASE WHEN _exact[_i] THEN _end ELSE greatest(deadline, _end) END, held = true
            WHERE place = _places[_i] AND token = _tokens[_i] AND owner = _owners[_i] AND deadline > _now;
            _answers := _answers || CASE WHEN FOUND THEN 'r' ELSE 'l' END;
        END IF;
    END LOOP;
    RETURN _answers;
END $$;


-- Take out the holders, or one owner, and return who they were.
CREATE OR REPLACE FUNCTION {schema}.break(_bucket integer, _place bytea, _owner text)
RETURNS SETOF {schema}.queue
LANGUAGE plpgsql SET lock_timeout = '1200ms' SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    _now timestamptz;
    _row {schema}.queue;
    _mode text;
    _slots integer;
    _count integer := 0;
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'local', true);  -- the broken lease cannot come back in a crash
    END IF;
    PERFORM 1 FROM {schema}.buckets WHERE bucket = _bucket FOR NO KEY UPDATE;
    _now := clock_timestamp();
    FOR _row IN
        SELECT * FROM {schema}.queue WHERE place = _place AND deadline > _now ORDER BY token
    LOOP
        IF _owner IS NULL THEN
            IF _count = 0 THEN
                _mode := _row.mode;
                _slots := _row.slots;
            END IF;
            EXIT WHEN _row.mode <> _mode OR _count = _slots AND _slots > 0;
            _count := _count + 1;
        ELSIF _row.owner <> _owner THEN
            CONTINUE;
        END IF;
        DELETE FROM {schema}.queue WHERE place = _place AND token = _row.token;
        IF _row.channel <> '' THEN
            PERFORM pg_notify(_row.channel, 'x' || _row.owner || _row.token);
        END IF;
        RETURN NEXT _row;
    END LOOP;
    PERFORM {schema}.hand_over(_place, _now);
END $$;


-- A role that uses this and does not own it needs:
--
-- GRANT USAGE ON SCHEMA {schema} TO worker;
-- GRANT SELECT ON {schema}.version TO worker;
-- GRANT SELECT, UPDATE ON {schema}.buckets TO worker;
-- GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.queue TO worker;
-- GRANT SELECT, INSERT, UPDATE ON {schema}.fencelock_schedule TO worker;
--
-- One that only looks:
--
-- GRANT USAGE ON SCHEMA {schema} TO looker;
-- GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO looker;
