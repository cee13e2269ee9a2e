-- +goose Up

-- Every statement can be run again, as in the second migration.

-- A run is a grant of a name to several waiters of one session, which pass the lock on in the
-- session's memory. The row shows its first member, and the first and the last of its tokens; of a
-- holder without a run both are its own token. token is the highest token ever reserved for the
-- name: it never falls. mixed: the holders of shares state several numbers of units, so that the
-- smallest, which the row has, may rise when one of them leaves.
SET @dblock_ddl = (SELECT IF(COUNT(*) = 0, '
ALTER TABLE dblock_locks
    ADD COLUMN first_token BIGINT     NOT NULL DEFAULT 0,
    ADD COLUMN last_token  BIGINT     NOT NULL DEFAULT 0,
    ADD COLUMN mixed       TINYINT(1) NOT NULL DEFAULT 0', 'DO 0')
  FROM information_schema.columns
 WHERE table_schema = DATABASE() AND table_name = 'dblock_locks' AND column_name = 'first_token');
PREPARE dblock_ddl FROM @dblock_ddl;
EXECUTE dblock_ddl;
/*T! ALTER TABLE dblock_locks
    ADD COLUMN first_token BIGINT     NOT NULL DEFAULT 0,
    ADD COLUMN last_token  BIGINT     NOT NULL DEFAULT 0,
    ADD COLUMN mixed       TINYINT(1) NOT NULL DEFAULT 0; */ DO 0;
UPDATE dblock_locks SET first_token = token, last_token = token WHERE session_id IS NOT NULL AND last_token = 0;

-- passable: the grant may be part of a run. token: of a member of a run, which keeps its place until
-- the run ends; 0: it waits. capacity: the number of units that it states.
SET @dblock_ddl = (SELECT IF(COUNT(*) = 0, '
ALTER TABLE dblock_waiters
    ADD COLUMN passable TINYINT(1) NOT NULL DEFAULT 0,
    ADD COLUMN token    BIGINT     NOT NULL DEFAULT 0,
    ADD COLUMN capacity INT        NOT NULL DEFAULT 0', 'DO 0')
  FROM information_schema.columns
 WHERE table_schema = DATABASE() AND table_name = 'dblock_waiters' AND column_name = 'passable');
PREPARE dblock_ddl FROM @dblock_ddl;
EXECUTE dblock_ddl;
/*T! ALTER TABLE dblock_waiters
    ADD COLUMN passable TINYINT(1) NOT NULL DEFAULT 0,
    ADD COLUMN token    BIGINT     NOT NULL DEFAULT 0,
    ADD COLUMN capacity INT        NOT NULL DEFAULT 0; */ DO 0;

UPDATE dblock_waiters w JOIN dblock_locks l ON l.name = w.name SET w.capacity = l.capacity WHERE w.units > 0 AND w.capacity = 0;

SET @dblock_ddl = (SELECT IF(COUNT(*) = 0, '
ALTER TABLE dblock_shares ADD COLUMN capacity INT NOT NULL DEFAULT 0', 'DO 0')
  FROM information_schema.columns
 WHERE table_schema = DATABASE() AND table_name = 'dblock_shares' AND column_name = 'capacity');
PREPARE dblock_ddl FROM @dblock_ddl;
EXECUTE dblock_ddl;
DEALLOCATE PREPARE dblock_ddl;
/*T! ALTER TABLE dblock_shares ADD COLUMN capacity INT NOT NULL DEFAULT 0; */ DO 0;
UPDATE dblock_shares s JOIN dblock_locks l ON l.name = s.name SET s.capacity = l.capacity WHERE s.capacity = 0;

-- Last, so that a migration that was cut off does not claim to be complete. An older build knows a
-- holder by token.
UPDATE dblock_schema SET version = 5, usable_from = 5 WHERE version = 4;

-- +goose Down
UPDATE dblock_schema SET version = 4, usable_from = 4 WHERE version = 5;
SET @dblock_ddl = (SELECT IF(COUNT(*) > 0, '
UPDATE dblock_locks SET token = last_token WHERE session_id IS NOT NULL', 'DO 0')
  FROM information_schema.columns
 WHERE table_schema = DATABASE() AND table_name = 'dblock_locks' AND column_name = 'last_token');
PREPARE dblock_ddl FROM @dblock_ddl;
EXECUTE dblock_ddl;
SET @dblock_ddl = (SELECT IF(COUNT(*) > 0, '
ALTER TABLE dblock_waiters DROP COLUMN passable, DROP COLUMN token, DROP COLUMN capacity', 'DO 0')
  FROM information_schema.columns
 WHERE table_schema = DATABASE() AND table_name = 'dblock_waiters' AND column_name = 'passable');
PREPARE dblock_ddl FROM @dblock_ddl;
EXECUTE dblock_ddl;
SET @dblock_ddl = (SELECT IF(COUNT(*) > 0, '
ALTER TABLE dblock_shares DROP COLUMN capacity', 'DO 0')
  FROM information_schema.columns
 WHERE table_schema = DATABASE() AND table_name = 'dblock_shares' AND column_name = 'capacity');
PREPARE dblock_ddl FROM @dblock_ddl;
EXECUTE dblock_ddl;
SET @dblock_ddl = (SELECT IF(COUNT(*) > 0, '
ALTER TABLE dblock_locks DROP COLUMN first_token, DROP COLUMN last_token, DROP COLUMN mixed', 'DO 0')
  FROM information_schema.columns
 WHERE table_schema = DATABASE() AND table_name = 'dblock_locks' AND column_name = 'first_token');
PREPARE dblock_ddl FROM @dblock_ddl;
EXECUTE dblock_ddl;
DEALLOCATE PREPARE dblock_ddl;
