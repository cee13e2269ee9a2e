-- +goose Up

-- Every statement can be run again: DDL commits as it goes, so that a migration that was cut off halfway is repeated.

-- The version of these tables, whatever ran the migrations, in whatever history. One row.
CREATE TABLE IF NOT EXISTS dblock_schema (
    version INT NOT NULL PRIMARY KEY
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Microseconds since 1970 on this server's clock at the start of the statement, whatever the session's time zone. With
-- the rights of the caller: a definer can be dropped.
CREATE OR REPLACE SQL SECURITY INVOKER VIEW dblock_clock AS
SELECT CAST(TIMESTAMPDIFF(MICROSECOND, TIMESTAMP '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS SIGNED) AS now_us;

-- One row per live client. It changes once, at death, so that a transaction can share-lock it to keep its lock.
CREATE TABLE IF NOT EXISTS dblock_sessions (
    id         VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    host       TEXT       NOT NULL,
    pid        BIGINT     NOT NULL,
    app        TEXT       NOT NULL,
    started_at BIGINT     NOT NULL,
    dead       TINYINT(1) NOT NULL DEFAULT 0
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The only row that a heartbeat writes. Never referenced by a foreign key: that would lock it. No index on
-- expires_at: it would be written with every heartbeat, for a table of one row per client.
CREATE TABLE IF NOT EXISTS dblock_heartbeats (
    session_id VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    expires_at BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The locks. The primary key is what makes an insert a lock; session_id is null where nobody holds it. Names are
-- bytes: every collation of text merges some of them. handed is 1 where the holder got the lock from another session
-- and need not know yet: that is what its listener looks for, through the index.
CREATE TABLE IF NOT EXISTS dblock_locks (
    name        VARBINARY(255) NOT NULL PRIMARY KEY,
    session_id  VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin,
    host        TEXT        NOT NULL,
    thread      TEXT        NOT NULL,
    holds       INT         NOT NULL DEFAULT 0,
    attempt     VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
    token       BIGINT      NOT NULL,
    acquired_at BIGINT      NOT NULL, -- of the last grant; with nobody holding it, of the last release
    expires_at  BIGINT,               -- fixed leases only
    waiters     INT         NOT NULL DEFAULT 0,
    next_ticket BIGINT      NOT NULL DEFAULT 1,
    metadata    MEDIUMTEXT  NOT NULL,
    handed      TINYINT     NOT NULL DEFAULT 0,
    KEY dblock_locks_session (session_id, handed),
    KEY dblock_locks_expires (expires_at),
    CONSTRAINT dblock_locks_name CHECK (OCTET_LENGTH(name) BETWEEN 1 AND 255)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The queue. Tickets come from the locked row of dblock_locks, never from AUTO_INCREMENT: there a later number can
-- commit first.
CREATE TABLE IF NOT EXISTS dblock_waiters (
    name        VARBINARY(255) NOT NULL,
    ticket      BIGINT     NOT NULL,
    session_id  VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    host        TEXT       NOT NULL,
    thread      TEXT       NOT NULL,
    attempt     VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    lease       BIGINT     NOT NULL, -- microseconds from the grant; 0: as long as the session
    metadata    MEDIUMTEXT NOT NULL,
    enqueued_at BIGINT     NOT NULL,
    PRIMARY KEY (name, ticket),
    UNIQUE KEY dblock_waiters_attempt (attempt),
    KEY dblock_waiters_session (session_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Last, so that a migration that was cut off does not claim to be complete.
INSERT INTO dblock_schema (version) SELECT 1 FROM DUAL WHERE NOT EXISTS (SELECT v.version FROM dblock_schema v);

-- +goose Down
DROP TABLE IF EXISTS dblock_schema;
DROP TABLE IF EXISTS dblock_waiters, dblock_locks, dblock_heartbeats, dblock_sessions;
DROP VIEW IF EXISTS dblock_clock;
