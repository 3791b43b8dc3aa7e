-- fencelock's tables for mysql+getlock://, version 1. The locks themselves are the server's (GET_LOCK).
--
-- PREFIXgetlock   the version, one row
-- PREFIXtokens    at most 256 rows: the last token that was given to a lock of each bucket

CREATE TABLE IF NOT EXISTS PREFIXgetlock (
  version INT NOT NULL PRIMARY KEY
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS PREFIXtokens (
  bucket SMALLINT UNSIGNED NOT NULL PRIMARY KEY,
  token BIGINT NOT NULL
) ENGINE = InnoDB;

INSERT IGNORE INTO PREFIXgetlock (version) VALUES (1);

-- A user that does not make them needs:
-- GRANT SELECT, INSERT, UPDATE ON `database`.* TO user;
