-- +goose Up

-- The version of these tables, whatever ran the migrations, in whatever history.
CREATE TABLE dblock_schema (version integer NOT NULL);
INSERT INTO dblock_schema (version) VALUES (1);

-- Microseconds since 1970 on this machine's clock, which SQLite reads in whole milliseconds. A Julian day as a float
-- is good to 40 microseconds, so that rounding gives the millisecond back; unixepoch('subsec') needs SQLite 3.42.
CREATE VIEW dblock_clock AS
SELECT CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 AS now_us;

-- One row per live client. It changes once, at death.
CREATE TABLE dblock_sessions (
    id         text    NOT NULL PRIMARY KEY,
    host       text    NOT NULL,
    pid        bigint  NOT NULL,
    app        text    NOT NULL,
    started_at bigint  NOT NULL,
    dead       boolean NOT NULL DEFAULT false
) WITHOUT ROWID;

-- The only row that a heartbeat writes. Its session reads it to hear of grants from other processes: a commit of the
-- application, or a lock that went elsewhere, wakes nobody.
CREATE TABLE dblock_heartbeats (
    session_id text   NOT NULL PRIMARY KEY,
    expires_at bigint NOT NULL,
    grants     bigint NOT NULL DEFAULT 0 -- locks given to the session, or taken from it, by somebody else
) WITHOUT ROWID;
CREATE INDEX dblock_heartbeats_expiry ON dblock_heartbeats (expires_at);

-- The locks. The primary key is what makes an insert a lock; session_id is null where nobody holds it. Names are
-- compared byte for byte: BINARY is the collation of a column that names none.
CREATE TABLE dblock_locks (
    name        text    NOT NULL PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 255),
    session_id  text,
    host        text    NOT NULL DEFAULT '',
    thread      text    NOT NULL DEFAULT '',
    holds       integer NOT NULL DEFAULT 0,
    attempt     text    NOT NULL DEFAULT '',
    token       bigint  NOT NULL,
    acquired_at bigint  NOT NULL, -- of the last grant; with nobody holding it, of the last release
    expires_at  bigint,           -- fixed leases only
    waiters     integer NOT NULL DEFAULT 0,
    next_ticket bigint  NOT NULL DEFAULT 1,
    metadata    text    NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE INDEX dblock_locks_session ON dblock_locks (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX dblock_locks_expiry ON dblock_locks (expires_at) WHERE expires_at IS NOT NULL;

-- The queue. Tickets come from the row of dblock_locks, in the transaction that writes both.
CREATE TABLE dblock_waiters (
    name        text   NOT NULL,
    ticket      bigint NOT NULL,
    session_id  text   NOT NULL,
    host        text   NOT NULL,
    thread      text   NOT NULL,
    attempt     text   NOT NULL UNIQUE,
    lease       bigint NOT NULL, -- microseconds from the grant; 0: as long as the session
    metadata    text   NOT NULL,
    enqueued_at bigint NOT NULL,
    PRIMARY KEY (name, ticket)
) WITHOUT ROWID;
CREATE INDEX dblock_waiters_session ON dblock_waiters (session_id);

-- +goose Down
DROP TABLE dblock_waiters;
DROP TABLE dblock_locks;
DROP TABLE dblock_heartbeats;
DROP TABLE dblock_sessions;
DROP VIEW dblock_clock;
DROP TABLE dblock_schema;
