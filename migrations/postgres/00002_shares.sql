-- +goose Up

-- What is shared of a name, in units. capacity counts while shared_units or waiters are above 0; otherwise the next request
-- that shares the name sets it. rests_until: before that time it is granted to nobody, held or not. asked: why another client wants it.
ALTER TABLE dblock_locks
    ADD COLUMN shared_units integer NOT NULL DEFAULT 0,
    ADD COLUMN capacity     integer NOT NULL DEFAULT 0,
    ADD COLUMN rests_until  bigint  NOT NULL DEFAULT 0,
    ADD COLUMN asked        text    NOT NULL DEFAULT '';

-- One row per reader or holder of permits. It changes only under the lock of the name's row in dblock_locks.
CREATE TABLE dblock_shares (
    name        text    COLLATE "C" NOT NULL,
    token       bigint  NOT NULL,
    session_id  text    COLLATE "C" NOT NULL,
    host        text    NOT NULL,
    thread      text    NOT NULL,
    holds       integer NOT NULL DEFAULT 1,
    attempt     text    COLLATE "C" NOT NULL UNIQUE,
    units       integer NOT NULL,
    acquired_at bigint  NOT NULL,
    expires_at  bigint, -- fixed leases only
    metadata    text    NOT NULL DEFAULT '',
    asked       text    NOT NULL DEFAULT '',
    PRIMARY KEY (name, token)
);
CREATE INDEX dblock_shares_session ON dblock_shares (session_id, name);
CREATE INDEX dblock_shares_expiry ON dblock_shares (expires_at) WHERE expires_at IS NOT NULL;

-- All holders of a name; units 0: the whole of it.
CREATE VIEW dblock_holders AS
SELECT name, token, session_id, host, thread, holds, attempt, units, acquired_at, expires_at, metadata, asked
  FROM dblock_shares
UNION ALL
SELECT name, token, session_id, host, thread, holds, attempt, 0, acquired_at, expires_at, metadata, asked
  FROM dblock_locks WHERE session_id IS NOT NULL;

-- units 0: the whole name.
ALTER TABLE dblock_waiters
    ADD COLUMN units    integer NOT NULL DEFAULT 0,
    ADD COLUMN min_hold bigint  NOT NULL DEFAULT 0;
-- The wait-for graph goes from owners to what they wait for.
CREATE INDEX dblock_waiters_owner ON dblock_waiters (session_id, thread);

-- The history. An id is no order of commits across names; of one name it is where events are written under its row's lock.
CREATE TABLE dblock_events (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         bigint NOT NULL,
    name       text   COLLATE "C" NOT NULL,
    kind       text   COLLATE "C" NOT NULL,
    token      bigint NOT NULL,
    session_id text   COLLATE "C" NOT NULL,
    host       text   NOT NULL,
    thread     text   NOT NULL,
    detail     text   NOT NULL,
    metadata   text   NOT NULL
);
CREATE INDEX dblock_events_name ON dblock_events (name, id);
CREATE INDEX dblock_events_at ON dblock_events (at);

-- One row per slot of a job. The primary key is what makes it run once.
CREATE TABLE dblock_runs (
    name       text    COLLATE "C" NOT NULL,
    slot       bigint  NOT NULL,
    token      bigint  NOT NULL,
    session_id text    COLLATE "C" NOT NULL,
    host       text    NOT NULL,
    thread     text    NOT NULL,
    began_at   bigint  NOT NULL,
    ended_at   bigint, -- null: it runs, or its session is dead
    failed     boolean NOT NULL DEFAULT false,
    detail     text    NOT NULL DEFAULT '',
    tries      integer NOT NULL DEFAULT 1,
    slot_ends  bigint  NOT NULL,
    PRIMARY KEY (name, slot)
);
CREATE INDEX dblock_runs_ends ON dblock_runs (slot_ends);

-- Which sessions want to hear of changes of a name.
CREATE TABLE dblock_watchers (
    name       text COLLATE "C" NOT NULL,
    watch      text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (name, watch)
);
CREATE INDEX dblock_watchers_session ON dblock_watchers (session_id);

-- Since when this database has had its data, for a client that must know that it lost none (one row, or none).
CREATE TABLE dblock_incarnation (
    one         integer PRIMARY KEY CHECK (one = 1),
    since       bigint  NOT NULL,
    token_floor bigint  NOT NULL
);

UPDATE dblock_schema SET version = 2;

-- +goose Down
DROP VIEW dblock_holders;
DROP TABLE dblock_incarnation, dblock_watchers, dblock_runs, dblock_events, dblock_shares;
DROP INDEX dblock_waiters_owner;
ALTER TABLE dblock_waiters DROP COLUMN units, DROP COLUMN min_hold;
ALTER TABLE dblock_locks DROP COLUMN shared_units, DROP COLUMN capacity, DROP COLUMN rests_until, DROP COLUMN asked;
UPDATE dblock_schema SET version = 1;
