-- +goose Up

-- Every statement can be run again, as in the first migration. Neither server lets an ALTER of columns be repeated in words
-- that both know: so the text of each is chosen by what is there, one for each table, which the server does wholly or not at
-- all. sqlc, whose parser is of TiDB, reads no strings: for it the same stands in comments of TiDB, which are none to it only.

-- What is shared of a name, in units. capacity counts while shared_units or waiters are above 0; otherwise the next request
-- that shares the name sets it. rests_until: before that time it is granted to nobody, held or not. asked: why another client wants it;
-- null where nobody holds the name.
SET @dblock_ddl = (SELECT IF(COUNT(*) = 0, '
ALTER TABLE dblock_locks
    ADD COLUMN shared_units INT    NOT NULL DEFAULT 0,
    ADD COLUMN capacity     INT    NOT NULL DEFAULT 0,
    ADD COLUMN rests_until  BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN asked        TEXT', 'DO 0')
  FROM information_schema.columns
 WHERE table_schema = DATABASE() AND table_name = 'dblock_locks' AND column_name = 'shared_units');
PREPARE dblock_ddl FROM @dblock_ddl;
EXECUTE dblock_ddl;
/*T! ALTER TABLE dblock_locks
    ADD COLUMN shared_units INT    NOT NULL DEFAULT 0,
    ADD COLUMN capacity     INT    NOT NULL DEFAULT 0,
    ADD COLUMN rests_until  BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN asked        TEXT; */ DO 0;

-- units 0: the whole name. The wait-for graph goes from owners to what they wait for.
SET @dblock_ddl = (SELECT IF(COUNT(*) = 0, '
ALTER TABLE dblock_waiters
    ADD COLUMN units    INT    NOT NULL DEFAULT 0,
    ADD COLUMN min_hold BIGINT NOT NULL DEFAULT 0,
    ADD KEY dblock_waiters_owner (session_id, thread(64))', 'DO 0')
  FROM information_schema.columns
 WHERE table_schema = DATABASE() AND table_name = 'dblock_waiters' AND column_name = 'units');
PREPARE dblock_ddl FROM @dblock_ddl;
EXECUTE dblock_ddl;
DEALLOCATE PREPARE dblock_ddl;
/*T! ALTER TABLE dblock_waiters
    ADD COLUMN units    INT    NOT NULL DEFAULT 0,
    ADD COLUMN min_hold BIGINT NOT NULL DEFAULT 0; */ DO 0;

-- One row per reader or holder of permits. It changes only under the lock of the name's row in dblock_locks, except for
-- holds and handed, which is as it is there.
CREATE TABLE IF NOT EXISTS dblock_shares (
    name        VARBINARY(255) NOT NULL,
    token       BIGINT      NOT NULL,
    session_id  VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    host        TEXT        NOT NULL,
    thread      TEXT        NOT NULL,
    holds       INT         NOT NULL DEFAULT 1,
    attempt     VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    units       INT         NOT NULL,
    acquired_at BIGINT      NOT NULL,
    expires_at  BIGINT,              -- fixed leases only
    metadata    MEDIUMTEXT  NOT NULL,
    asked       TEXT,
    handed      TINYINT     NOT NULL DEFAULT 0,
    PRIMARY KEY (name, token),
    UNIQUE KEY dblock_shares_attempt (attempt),
    KEY dblock_shares_session (session_id, handed),
    KEY dblock_shares_expires (expires_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The history. An id is no order of commits across names; of one name it is where events are written under its row's lock.
CREATE TABLE IF NOT EXISTS dblock_events (
    id         BIGINT      NOT NULL AUTO_INCREMENT PRIMARY KEY,
    at         BIGINT      NOT NULL,
    name       VARBINARY(255) NOT NULL,
    kind       VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    token      BIGINT      NOT NULL,
    session_id VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    host       TEXT        NOT NULL,
    thread     TEXT        NOT NULL,
    detail     TEXT        NOT NULL,
    metadata   MEDIUMTEXT  NOT NULL,
    KEY dblock_events_name (name, id),
    KEY dblock_events_at (at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- One row per slot of a job. The primary key is what makes it run once.
CREATE TABLE IF NOT EXISTS dblock_runs (
    name       VARBINARY(255) NOT NULL,
    slot       BIGINT      NOT NULL,
    token      BIGINT      NOT NULL,
    session_id VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    host       TEXT        NOT NULL,
    thread     TEXT        NOT NULL,
    began_at   BIGINT      NOT NULL,
    ended_at   BIGINT,              -- null: it runs, or its session is dead
    failed     TINYINT(1)  NOT NULL DEFAULT 0,
    detail     TEXT        NOT NULL,
    tries      INT         NOT NULL DEFAULT 1,
    slot_ends  BIGINT      NOT NULL,
    PRIMARY KEY (name, slot),
    KEY dblock_runs_ends (slot_ends)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Which sessions want to hear of changes of a name.
CREATE TABLE IF NOT EXISTS dblock_watchers (
    name       VARBINARY(255) NOT NULL,
    watch      VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    session_id VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    PRIMARY KEY (name, watch),
    KEY dblock_watchers_session (session_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Since when this database has had its data, for a client that must know that it lost none (one row, or none).
CREATE TABLE IF NOT EXISTS dblock_incarnation (
    one         INT    NOT NULL PRIMARY KEY,
    since       BIGINT NOT NULL,
    token_floor BIGINT NOT NULL,
    CONSTRAINT dblock_incarnation_one CHECK (one = 1)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Last, so that a migration that was cut off does not claim to be complete.
UPDATE dblock_schema SET version = 2 WHERE version = 1;

-- +goose Down
UPDATE dblock_schema SET version = 1 WHERE version = 2;
DROP TABLE IF EXISTS dblock_incarnation, dblock_watchers, dblock_runs, dblock_events, dblock_shares;
SET @dblock_ddl = (SELECT IF(COUNT(*) > 0, '
ALTER TABLE dblock_waiters DROP KEY dblock_waiters_owner, DROP COLUMN units, DROP COLUMN min_hold', 'DO 0')
  FROM information_schema.columns
 WHERE table_schema = DATABASE() AND table_name = 'dblock_waiters' AND column_name = 'units');
PREPARE dblock_ddl FROM @dblock_ddl;
EXECUTE dblock_ddl;
SET @dblock_ddl = (SELECT IF(COUNT(*) > 0, '
ALTER TABLE dblock_locks DROP COLUMN shared_units, DROP COLUMN capacity, DROP COLUMN rests_until, DROP COLUMN asked', 'DO 0')
  FROM information_schema.columns
 WHERE table_schema = DATABASE() AND table_name = 'dblock_locks' AND column_name = 'shared_units');
PREPARE dblock_ddl FROM @dblock_ddl;
EXECUTE dblock_ddl;
DEALLOCATE PREPARE dblock_ddl;
