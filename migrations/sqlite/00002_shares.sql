-- +goose Up

-- What is shared of a name, in units. capacity counts while shared_units or waiters are above 0; otherwise the next request
-- that shares the name sets it. rests_until: before that time it is granted to nobody, held or not. asked: why another client wants it.
ALTER TABLE dblock_locks ADD COLUMN shared_units integer NOT NULL DEFAULT 0;
ALTER TABLE dblock_locks ADD COLUMN capacity integer NOT NULL DEFAULT 0;
ALTER TABLE dblock_locks ADD COLUMN rests_until bigint NOT NULL DEFAULT 0;
ALTER TABLE dblock_locks ADD COLUMN asked text NOT NULL DEFAULT '';

-- One row per reader or holder of permits.
CREATE TABLE dblock_shares (
    name        text    NOT NULL,
    token       bigint  NOT NULL,
    session_id  text    NOT NULL,
    host        text    NOT NULL,
    thread      text    NOT NULL,
    holds       integer NOT NULL DEFAULT 1,
    attempt     text    NOT NULL UNIQUE,
    units       integer NOT NULL,
    acquired_at bigint  NOT NULL,
    expires_at  bigint, -- fixed leases only
    metadata    text    NOT NULL DEFAULT '',
    asked       text    NOT NULL DEFAULT '',
    PRIMARY KEY (name, token)
) WITHOUT ROWID;
CREATE INDEX dblock_shares_session ON dblock_shares (session_id);
CREATE INDEX dblock_shares_expiry ON dblock_shares (expires_at) WHERE expires_at IS NOT NULL;

-- units 0: the whole name.
ALTER TABLE dblock_waiters ADD COLUMN units integer NOT NULL DEFAULT 0;
ALTER TABLE dblock_waiters ADD COLUMN min_hold bigint NOT NULL DEFAULT 0;
-- The wait-for graph goes from owners to what they wait for. It also serves queries by session alone.
CREATE INDEX dblock_waiters_owner ON dblock_waiters (session_id, thread);
DROP INDEX dblock_waiters_session;

-- The sessions that something can be granted to.
CREATE VIEW dblock_living AS
SELECT s.id FROM dblock_sessions s JOIN dblock_heartbeats h ON h.session_id = s.id
 WHERE NOT s.dead AND h.expires_at > (SELECT c.now_us FROM dblock_clock c);

-- The history.
CREATE TABLE dblock_events (
    id         integer NOT NULL PRIMARY KEY AUTOINCREMENT,
    at         bigint  NOT NULL,
    name       text    NOT NULL,
    kind       text    NOT NULL,
    token      bigint  NOT NULL,
    session_id text    NOT NULL,
    host       text    NOT NULL,
    thread     text    NOT NULL,
    detail     text    NOT NULL,
    metadata   text    NOT NULL
);
CREATE INDEX dblock_events_name ON dblock_events (name, id);
CREATE INDEX dblock_events_at ON dblock_events (at);

-- One row per slot of a job. The primary key is what makes it run once.
CREATE TABLE dblock_runs (
    name       text    NOT NULL,
    slot       bigint  NOT NULL,
    token      bigint  NOT NULL,
    session_id text    NOT NULL,
    host       text    NOT NULL,
    thread     text    NOT NULL,
    began_at   bigint  NOT NULL,
    ended_at   bigint, -- null: it runs, or its session is dead
    failed     boolean NOT NULL DEFAULT false,
    detail     text    NOT NULL DEFAULT '',
    tries      integer NOT NULL DEFAULT 1,
    slot_ends  bigint  NOT NULL,
    PRIMARY KEY (name, slot)
) WITHOUT ROWID;
CREATE INDEX dblock_runs_ends ON dblock_runs (slot_ends);

-- Which sessions want to hear of changes of a name.
CREATE TABLE dblock_watchers (
    name       text NOT NULL,
    watch      text NOT NULL,
    session_id text NOT NULL,
    PRIMARY KEY (name, watch)
) WITHOUT ROWID;
CREATE INDEX dblock_watchers_session ON dblock_watchers (session_id);

-- Since when this database has had its data, for a client that must know that it lost none (one row, or none).
CREATE TABLE dblock_incarnation (
    one         integer NOT NULL PRIMARY KEY CHECK (one = 1),
    since       bigint  NOT NULL,
    token_floor bigint  NOT NULL
);

UPDATE dblock_schema SET version = 2;

-- +goose Down
DROP TABLE dblock_incarnation;
DROP TABLE dblock_watchers;
DROP TABLE dblock_runs;
DROP TABLE dblock_events;
DROP TABLE dblock_shares;
DROP VIEW dblock_living;
CREATE INDEX dblock_waiters_session ON dblock_waiters (session_id);
DROP INDEX dblock_waiters_owner;
ALTER TABLE dblock_waiters DROP COLUMN units;
ALTER TABLE dblock_waiters DROP COLUMN min_hold;
ALTER TABLE dblock_locks DROP COLUMN shared_units;
ALTER TABLE dblock_locks DROP COLUMN capacity;
ALTER TABLE dblock_locks DROP COLUMN rests_until;
ALTER TABLE dblock_locks DROP COLUMN asked;
UPDATE dblock_schema SET version = 1;
