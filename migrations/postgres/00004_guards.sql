-- +goose Up

-- One row per hold that was ever guarded, known by its attempt. Guard share-locks it. It is made
-- under the lock of the name's row, and every takeover of the hold counts takeovers up: a guarded
-- transaction with an older snapshot must see that.
CREATE TABLE dblock_guards (
    attempt    text   COLLATE "C" PRIMARY KEY,
    name       text   COLLATE "C" NOT NULL,
    session_id text   COLLATE "C" NOT NULL,
    takeovers  bigint NOT NULL DEFAULT 0
);

-- Holds that a takeover wants, which a guarded transaction has refused: until then, no new guard of
-- the hold begins.
CREATE TABLE dblock_wanted (
    attempt      text   COLLATE "C" PRIMARY KEY,
    wanted_until bigint NOT NULL
);

-- An older build guards by the row of the session, and takes over past guards that it does not
-- know.
UPDATE dblock_schema SET version = 4, usable_from = 4;

-- +goose Down
DROP TABLE dblock_wanted, dblock_guards;
UPDATE dblock_schema SET version = 3, usable_from = 3;
