-- fencelock's lease table, version 1. For MySQL 8 and MariaDB 10.6 or newer.
--
-- PREFIXschema    the version of all this, one row
-- PREFIXbuckets   256 rows: a bucket is the latch of its names, and has the last token it gave
-- PREFIXqueue     the requests of all names, those that hold and those that wait; empty when idle
-- PREFIXgone      requests that were given up while a step of theirs may still be under way, for a
--                 minute: that step must not put them into the queue after all
-- PREFIXschedule  the records of schedules, see fencelock/schedule
--
-- A place is a lock: namespace, NUL, name. Times are microseconds since 1970, UTC, by the server's
-- clock; they are read by a statement of their own, after the latch was taken: inside a procedure each
-- statement has its own time. A request whose deadline has passed counts as gone.
--
-- Every procedure is one transaction, and ends it. None waits for anything but row locks, so a
-- client that stops in the middle of a step holds up nobody.
--
-- Order of locks: the latch of one bucket, then rows of one place; or rows alone, by place and token.

CREATE TABLE IF NOT EXISTS PREFIXschema (
  version INT NOT NULL PRIMARY KEY
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS PREFIXbuckets (
  bucket SMALLINT UNSIGNED NOT NULL PRIMARY KEY,
  token BIGINT NOT NULL
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS PREFIXqueue (
  place VARBINARY(1100) NOT NULL,
  token BIGINT NOT NULL,
  owner VARBINARY(64) NOT NULL,
  mode VARBINARY(16) NOT NULL,
  slots INT NOT NULL,
  deadline BIGINT NOT NULL,
  since BIGINT NOT NULL,
  held TINYINT NOT NULL,
  details BLOB NOT NULL,
  PRIMARY KEY (place, token)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS PREFIXgone (
  owner VARBINARY(64) NOT NULL PRIMARY KEY,
  deadline BIGINT NOT NULL
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS PREFIXschedule (
  id CHAR(64) NOT NULL PRIMARY KEY,
  version BIGINT NOT NULL,
  body LONGTEXT NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;

DELIMITER //

-- Stand in the queue, and perhaps be admitted: the queue rule. `p_wait`: 0 leave nothing if it is busy,
-- 1 wait, 2 wait and this is the first step. Answers with one number, the token, if it is granted; else
-- (0, token, recheck, now, how many before, and the holder) busy, (2, limit in use), (3, 0) given up before.
CREATE PROCEDURE PREFIXacquire_v1 (
  IN p_bucket SMALLINT UNSIGNED,
  IN p_place VARBINARY(1100),
  IN p_owner VARBINARY(64),
  IN p_mode VARBINARY(16),
  IN p_slots INT,
  IN p_ttl BIGINT,
  IN p_patience BIGINT,
  IN p_wait TINYINT,
  IN p_details BLOB
)
SQL SECURITY INVOKER
BEGIN
  DECLARE v_now, v_last, v_drawn, v_token, v_upto, v_recheck, v_head BIGINT;
  DECLARE v_there, v_expired, v_before, v_others, v_other_slots, v_gone INT DEFAULT 0;
  DECLARE v_held TINYINT;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    ROLLBACK;
    RESIGNAL;
  END;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  IF p_wait = 2 THEN
    -- Whoever comes and stays needs a token in any case: drawing it takes the latch.
    UPDATE PREFIXbuckets SET token = LAST_INSERT_ID(
        GREATEST(token + 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))))
      WHERE bucket = p_bucket;
    IF ROW_COUNT() = 1 THEN
      SET v_drawn = LAST_INSERT_ID();
    END IF;
  END IF;
  IF v_drawn IS NULL THEN
    SELECT MAX(token) INTO v_last FROM PREFIXbuckets WHERE bucket = p_bucket FOR UPDATE;
    IF v_last IS NULL THEN
      -- Somebody deleted the row: make it again. The token below is the time then, so it still rises.
      INSERT INTO PREFIXbuckets (bucket, token) VALUES (p_bucket, 0)
        ON DUPLICATE KEY UPDATE bucket = bucket;
      SELECT MAX(token) INTO v_last FROM PREFIXbuckets WHERE bucket = p_bucket FOR UPDATE;
    END IF;
  END IF;
  SET v_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
  SELECT COUNT(*), COALESCE(SUM(deadline <= v_now), 0),
      (SELECT COUNT(*) FROM PREFIXgone WHERE owner = p_owner)
    INTO v_there, v_expired, v_gone
    FROM PREFIXqueue WHERE place = p_place;
  IF v_expired > 0 THEN
    DELETE FROM PREFIXqueue WHERE place = p_place AND deadline <= v_now;
  END IF;
  IF v_there > v_expired THEN
    SET v_upto = 9223372036854775807;
    SELECT MAX(token) INTO v_token FROM PREFIXqueue WHERE place = p_place AND owner = p_owner;
    IF v_token IS NOT NULL THEN
      -- Under a lock of its own: it may be about to leave.
      SELECT MAX(held) INTO v_held FROM PREFIXqueue
        WHERE place = p_place AND token = v_token FOR UPDATE;
      IF v_held IS NULL THEN
        SET v_token = NULL;
      ELSE
        SET v_upto = v_token;
      END IF;
    END IF;
    IF v_token IS NULL AND p_mode = 'permit' THEN
      SELECT COALESCE(MAX(slots), 0) INTO v_other_slots FROM PREFIXqueue
        WHERE place = p_place AND mode = 'permit' AND slots <> p_slots;
    END IF;
    SELECT COUNT(*), COALESCE(SUM(mode <> p_mode), 0), MIN(deadline) - v_now, MIN(token)
      INTO v_before, v_others, v_recheck, v_head
      FROM PREFIXqueue WHERE place = p_place AND token < v_upto;
  END IF;

  IF v_token IS NULL AND v_gone > 0 THEN
    ROLLBACK;
    SELECT 3, 0;
  ELSEIF v_other_slots > 0 THEN
    ROLLBACK;
    SELECT 2, v_other_slots;
  ELSEIF v_before = 0 OR (v_others = 0 AND (p_slots = 0 OR v_before < p_slots)) THEN
    IF v_token IS NULL THEN
      SET v_token = COALESCE(v_drawn, GREATEST(v_last + 1, v_now));
      IF v_drawn IS NULL THEN
        UPDATE PREFIXbuckets SET token = v_token WHERE bucket = p_bucket;
      END IF;
      INSERT INTO PREFIXqueue (place, token, owner, mode, slots, deadline, since, held, details)
        VALUES (p_place, v_token, p_owner, p_mode, p_slots, v_now + p_ttl, v_now, 1, p_details);
    ELSEIF v_held THEN
      -- Never earlier than it was: a step that was given up may arrive after an extension.
      UPDATE PREFIXqueue SET deadline = GREATEST(deadline, v_now + p_ttl)
        WHERE place = p_place AND token = v_token;
    ELSE
      UPDATE PREFIXqueue SET deadline = v_now + p_ttl, since = v_now, held = 1
        WHERE place = p_place AND token = v_token;
    END IF;
    COMMIT;
    SELECT v_token;
  ELSE
    IF v_token IS NULL THEN
      IF p_wait THEN
        SET v_token = COALESCE(v_drawn, GREATEST(v_last + 1, v_now));
        IF v_drawn IS NULL THEN
          UPDATE PREFIXbuckets SET token = v_token WHERE bucket = p_bucket;
        END IF;
        INSERT INTO PREFIXqueue (place, token, owner, mode, slots, deadline, since, held, details)
          VALUES (p_place, v_token, p_owner, p_mode, p_slots, v_now + p_patience, v_now, 0, p_details);
      END IF;
    ELSEIF p_wait THEN
      UPDATE PREFIXqueue SET deadline = v_now + p_patience WHERE place = p_place AND token = v_token;
    ELSE
      DELETE FROM PREFIXqueue WHERE place = p_place AND token = v_token;
    END IF;
    COMMIT;
    SELECT 0, COALESCE(v_token, 0), v_recheck, v_now, v_before,
        head.owner, head.token, head.mode, head.slots, head.deadline, head.since, head.details
      FROM (SELECT 1 AS one) AS nothing
      LEFT JOIN PREFIXqueue AS head ON head.place = p_place AND head.token = v_head;
    COMMIT;
  END IF;
END//

-- How many stand before a waiter: nothing is written.
-- Answers (is it there, how many before it, how many of those in another mode).
CREATE PROCEDURE PREFIXahead_v1 (IN p_place VARBINARY(1100), IN p_token BIGINT, IN p_mode VARBINARY(16))
SQL SECURITY INVOKER
BEGIN
  DECLARE v_now BIGINT;
  SET v_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
  SELECT COUNT(CASE WHEN token = p_token THEN 1 END), COUNT(CASE WHEN token < p_token THEN 1 END),
      COUNT(CASE WHEN token < p_token AND mode <> p_mode THEN 1 END)
    FROM PREFIXqueue WHERE place = p_place AND token <= p_token AND deadline > v_now;
  COMMIT;
END//

-- Move the deadlines of leases that are held. `p_leases` has for each: place in hexadecimal digits,
-- blank, token, blank, owner, blank, ttl, blank, exact (0 or 1), and a bar; sorted by place and token. A ttl
-- of 0 only looks, -1 takes it out. Answers with one letter for each: R renewed, H held, X taken out, L lost.
CREATE PROCEDURE PREFIXrenew_v2 (IN p_leases LONGBLOB)
SQL SECURITY INVOKER
BEGIN
  DECLARE v_now, v_token, v_ttl, v_deadline BIGINT;
  DECLARE v_exact TINYINT;
  DECLARE v_start INT DEFAULT 1;
  DECLARE v_end INT;
  DECLARE v_line VARBINARY(4000);
  DECLARE v_place VARBINARY(1100);
  DECLARE v_owner VARBINARY(64);
  DECLARE v_answers LONGBLOB DEFAULT '';
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    ROLLBACK;
    RESIGNAL;
  END;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  SET v_end = LOCATE('|', p_leases, v_start);
  WHILE v_end > 0 DO
    SET v_line = SUBSTRING(p_leases, v_start, v_end - v_start);
    SET v_place = UNHEX(SUBSTRING_INDEX(v_line, ' ', 1));
    SET v_token = CAST(SUBSTRING_INDEX(SUBSTRING_INDEX(v_line, ' ', 2), ' ', -1) AS SIGNED);
    SET v_owner = SUBSTRING_INDEX(SUBSTRING_INDEX(v_line, ' ', 3), ' ', -1);
    SET v_ttl = CAST(SUBSTRING_INDEX(SUBSTRING_INDEX(v_line, ' ', 4), ' ', -1) AS SIGNED);
    SET v_exact = CAST(SUBSTRING_INDEX(v_line, ' ', -1) AS SIGNED);
    SELECT MAX(deadline) INTO v_deadline FROM PREFIXqueue
      WHERE place = v_place AND token = v_token AND owner = v_owner FOR UPDATE;
    SET v_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    IF v_deadline IS NULL OR v_deadline <= v_now THEN
      SET v_answers = CONCAT(v_answers, 'L');
    ELSEIF v_ttl = 0 THEN
      SET v_answers = CONCAT(v_answers, 'H');
    ELSEIF v_ttl < 0 THEN
      DELETE FROM PREFIXqueue WHERE place = v_place AND token = v_token;
      SET v_answers = CONCAT(v_answers, 'X');
    ELSE
      -- A deadline moves back only if its holder asked for that: steps may overtake each other.
      UPDATE PREFIXqueue SET deadline = IF(v_exact, v_now + v_ttl, GREATEST(deadline, v_now + v_ttl))
        WHERE place = v_place AND token = v_token;
      SET v_answers = CONCAT(v_answers, 'R');
    END IF;
    SET v_start = v_end + 1;
    SET v_end = LOCATE('|', p_leases, v_start);
  END WHILE;
  COMMIT;
  SELECT v_answers;
END//

-- Leave the queue. Token 0: whichever it has. Answers with how many rows that was. `p_unsure`: a step of
-- its own may still be under way; then under the latch, and so that the step finds it gone. The token that is
-- drawn for that tells clients of an older fencelock, whose take_v1 trusts a token that has not changed.
-- A plain release is a single DELETE, and needs no procedure where each statement commits itself.
CREATE PROCEDURE PREFIXleave_v2 (IN p_bucket SMALLINT UNSIGNED, IN p_place VARBINARY(1100),
  IN p_owner VARBINARY(64), IN p_token BIGINT, IN p_unsure TINYINT)
SQL SECURITY INVOKER
BEGIN
  DECLARE v_token, v_left BIGINT DEFAULT 0;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    ROLLBACK;
    RESIGNAL;
  END;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  IF p_unsure THEN
    UPDATE PREFIXbuckets SET token = token + 1 WHERE bucket = p_bucket;
    INSERT IGNORE INTO PREFIXgone (owner, deadline)
      VALUES (p_owner, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + 60000000);
  END IF;
  SET v_token = p_token;
  IF v_token = 0 THEN
    SELECT COALESCE(MAX(token), 0) INTO v_token FROM PREFIXqueue
      WHERE place = p_place AND owner = p_owner;
  END IF;
  DELETE FROM PREFIXqueue WHERE place = p_place AND token = v_token AND owner = p_owner;
  SET v_left = ROW_COUNT();
  COMMIT;
  SELECT v_left;
END//

-- Who holds and who waits, of all places from one to another, without those whose time is over.
CREATE PROCEDURE PREFIXlook_v1 (IN p_from VARBINARY(1100), IN p_to VARBINARY(1100))
SQL SECURITY INVOKER
BEGIN
  DECLARE v_now BIGINT;
  SET v_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
  SELECT v_now, place, owner, token, mode, slots, deadline, since, details
    FROM PREFIXqueue WHERE place >= p_from AND place < p_to AND deadline > v_now
    ORDER BY place, token;
  COMMIT;
END//

-- Take out what expired long ago, of names that nobody asks for any more. Those that are asked for
-- are swept by whoever asks, under the latch; the grace keeps the two apart.
CREATE PROCEDURE PREFIXsweep_v1 (IN p_grace BIGINT)
SQL SECURITY INVOKER
BEGIN
  DECLARE v_before, v_token BIGINT;
  DECLARE v_place VARBINARY(1100);
  DECLARE v_end, v_gone INT DEFAULT 0;
  DECLARE v_old CURSOR FOR
    SELECT place, token FROM PREFIXqueue WHERE deadline <= v_before ORDER BY place, token LIMIT 1000;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_end = 1;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    ROLLBACK;
    RESIGNAL;
  END;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  SET v_before = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - p_grace;
  OPEN v_old;
  FETCH v_old INTO v_place, v_token;
  WHILE v_end = 0 DO
    DELETE FROM PREFIXqueue WHERE place = v_place AND token = v_token AND deadline <= v_before;
    SET v_gone = v_gone + 1;
    FETCH v_old INTO v_place, v_token;
  END WHILE;
  CLOSE v_old;
  DELETE FROM PREFIXgone WHERE deadline <= v_before;
  COMMIT;
  SELECT v_gone;
END//

DELIMITER ;

INSERT IGNORE INTO PREFIXbuckets (bucket, token)
  SELECT ones.n + 16 * sixteens.n, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
  FROM
    (SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
     UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9
     UNION ALL SELECT 10 UNION ALL SELECT 11 UNION ALL SELECT 12 UNION ALL SELECT 13
     UNION ALL SELECT 14 UNION ALL SELECT 15) AS ones,
    (SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
     UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9
     UNION ALL SELECT 10 UNION ALL SELECT 11 UNION ALL SELECT 12 UNION ALL SELECT 13
     UNION ALL SELECT 14 UNION ALL SELECT 15) AS sixteens;

INSERT IGNORE INTO PREFIXschema (version) VALUES (1);

-- A user that uses them and does not make them needs:
--
-- GRANT SELECT ON PREFIXschema TO worker;
-- GRANT SELECT, INSERT, UPDATE ON PREFIXbuckets TO worker;
-- GRANT SELECT, INSERT, UPDATE, DELETE ON PREFIXqueue TO worker;
-- GRANT SELECT, INSERT, DELETE ON PREFIXgone TO worker;
-- GRANT SELECT, INSERT, UPDATE ON PREFIXschedule TO worker;
-- GRANT EXECUTE ON PROCEDURE PREFIXacquire_v1 TO worker;
-- GRANT EXECUTE ON PROCEDURE PREFIXahead_v1 TO worker;
-- GRANT EXECUTE ON PROCEDURE PREFIXrenew_v2 TO worker;
-- GRANT EXECUTE ON PROCEDURE PREFIXleave_v2 TO worker;
-- GRANT EXECUTE ON PROCEDURE PREFIXlook_v1 TO worker;
-- GRANT EXECUTE ON PROCEDURE PREFIXsweep_v1 TO worker;
--
-- One that only looks:
--
-- GRANT SELECT ON PREFIXschema TO looker;
-- GRANT SELECT ON PREFIXqueue TO looker;
-- GRANT SELECT ON PREFIXschedule TO looker;
-- GRANT EXECUTE ON PROCEDURE PREFIXlook_v1 TO looker;
