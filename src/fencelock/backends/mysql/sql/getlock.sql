-- fencelock's tables for mysql+getlock://, version 1. The locks themselves are the server's (GET_LOCK).
--
-- PREFIXgetlock   the version, one row
-- PREFIXtokens    at most 256 rows: the last token that was given to a lock of each bucket
-- PREFIXschedule  the records of schedules, see fencelock/schedule

CREATE TABLE IF NOT EXISTS PREFIXgetlock (
  version INT NOT NULL PRIMARY KEY
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS PREFIXtokens (
  bucket SMALLINT UNSIGNED NOT NULL PRIMARY KEY,
  token BIGINT NOT NULL
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS PREFIXschedule (
  id CHAR(64) NOT NULL PRIMARY KEY,
  version BIGINT NOT NULL,
  body LONGTEXT NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;

INSERT IGNORE INTO PREFIXgetlock (version) VALUES (1);

-- A user that uses them and does not make them needs:
--
-- GRANT SELECT ON PREFIXgetlock TO worker;
-- GRANT SELECT, INSERT, UPDATE ON PREFIXtokens TO worker;
-- GRANT SELECT, INSERT, UPDATE ON PREFIXschedule TO worker;
