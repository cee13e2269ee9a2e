-- +goose Up

-- Every statement can be run again, as in the first migration.

-- One row per hold that was ever guarded, known by its attempt. Guard share-locks it. It is made
-- under the lock of the name's row, and every takeover of the hold counts takeovers up: above 0
-- nobody guards the hold any more.
CREATE TABLE IF NOT EXISTS dblock_guards (
    attempt    VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    name       VARBINARY(255) NOT NULL,
    session_id VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    takeovers  BIGINT NOT NULL DEFAULT 0
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Holds that a takeover wants, which a guarded transaction has refused: until then, no new guard of
-- the hold begins.
CREATE TABLE IF NOT EXISTS dblock_wanted (
    attempt      VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    wanted_until BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Last, so that a migration that was cut off does not claim to be complete. An older build guards
-- by the row of the session, and takes over past guards that it does not know.
UPDATE dblock_schema SET version = 4, usable_from = 4 WHERE version = 3;

-- +goose Down
UPDATE dblock_schema SET version = 3, usable_from = 3 WHERE version = 4;
DROP TABLE IF EXISTS dblock_wanted, dblock_guards;
