-- +goose Up

-- Which builds can use these tables, and which database this is. One row. usable_from is the oldest build
-- (driver.SchemaVersion) that can use the tables. A migration that an older build cannot live with sets usable_from to its
-- own version. All others leave it, and only add. A client refuses a transaction of a database with another database_id.
CREATE TABLE dblock_schema (
    version     integer NOT NULL PRIMARY KEY,
    usable_from integer NOT NULL,
    database_id text    NOT NULL
);
INSERT INTO dblock_schema (version, usable_from, database_id) VALUES (1, 1, lower(hex(randomblob(16))));

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
    dead       boolean NOT NULL DEFAULT false,
    -- Of a session that was buried: its process has ended, and another one on the same host has seen that.
    buried_by      text NOT NULL DEFAULT '',
    buried_because text NOT NULL DEFAULT ''
) WITHOUT ROWID;

-- The only row that a heartbeat writes. No index has expires_at: each heartbeat would write it, and a table of sessions is
-- short. Its session reads it to hear of grants from other processes: a commit of the
-- application, or a lock that went elsewhere, wakes no session.
CREATE TABLE dblock_heartbeats (
    session_id text   NOT NULL PRIMARY KEY,
    expires_at bigint NOT NULL,
    grants     bigint NOT NULL DEFAULT 0 -- locks granted to the session, or revoked from it, by another session
) WITHOUT ROWID;

-- The sessions that something can be granted to.
CREATE VIEW dblock_living AS
SELECT s.id FROM dblock_sessions s JOIN dblock_heartbeats h ON h.session_id = s.id
 WHERE NOT s.dead AND h.expires_at > (SELECT c.now_us FROM dblock_clock c);

-- The locks. The primary key makes an insert a lock. Names are compared byte for byte: BINARY is the collation of a
-- column that names none.
CREATE TABLE dblock_locks (
    name         text    NOT NULL PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 255),
    -- The holder of the whole name. session_id is null where there is none.
    session_id   text,
    host         text    NOT NULL DEFAULT '',
    thread       text    NOT NULL DEFAULT '',
    attempt      text    NOT NULL DEFAULT '',
    -- The highest token ever reserved for the name: it never falls. A cohort is a number of requests of one
    -- session that joined the queue together: one place, one attempt, and one grant with a token for each member. The row
    -- shows the first and the last of these tokens. Of a holder by itself both are its own.
    token        bigint  NOT NULL,
    first_token  bigint  NOT NULL DEFAULT 0,
    last_token   bigint  NOT NULL DEFAULT 0,
    acquired_at  bigint  NOT NULL, -- of the last grant; of a free name, of the last release
    expires_at   bigint,           -- fixed leases only
    metadata     text    NOT NULL DEFAULT '',
    asked        text    NOT NULL DEFAULT '', -- why another client wants it
    -- The units of the name that are shared. capacity is the smallest number that a holder states. It counts while shared_units
    -- or waiters are above 0; otherwise the next request that shares the name sets it. mixed: the holders state several
    -- numbers, so that capacity may rise when one of them leaves.
    shared_units integer NOT NULL DEFAULT 0,
    capacity     integer NOT NULL DEFAULT 0,
    mixed        boolean NOT NULL DEFAULT false,
    rests_until  bigint  NOT NULL DEFAULT 0, -- before that time the name is not granted, held or not
    waiters      integer NOT NULL DEFAULT 0,
    next_ticket  bigint  NOT NULL DEFAULT 1
) WITHOUT ROWID;
CREATE INDEX dblock_locks_session ON dblock_locks (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX dblock_locks_expiry ON dblock_locks (expires_at) WHERE expires_at IS NOT NULL;

-- One row per reader or holder of permits.
CREATE TABLE dblock_shares (
    name        text    NOT NULL,
    token       bigint  NOT NULL,
    session_id  text    NOT NULL,
    host        text    NOT NULL,
    thread      text    NOT NULL,
    attempt     text    NOT NULL,
    units       integer NOT NULL,
    capacity    integer NOT NULL DEFAULT 0, -- the number of units that it states
    acquired_at bigint  NOT NULL,
    expires_at  bigint, -- fixed leases only
    metadata    text    NOT NULL DEFAULT '',
    asked       text    NOT NULL DEFAULT '',
    PRIMARY KEY (name, token)
) WITHOUT ROWID;
-- An attempt has one share.
CREATE UNIQUE INDEX dblock_shares_session ON dblock_shares (session_id, attempt);
CREATE INDEX dblock_shares_expiry ON dblock_shares (expires_at) WHERE expires_at IS NOT NULL;

-- The queue. Tickets come from the row of dblock_locks, in the transaction that writes both.
CREATE TABLE dblock_waiters (
    name        text    NOT NULL,
    ticket      bigint  NOT NULL,
    session_id  text    NOT NULL,
    host        text    NOT NULL,
    thread      text    NOT NULL,
    attempt     text    NOT NULL,
    units       integer NOT NULL DEFAULT 0, -- 0: the whole name
    capacity    integer NOT NULL DEFAULT 0, -- the number of units that it states
    lease       bigint  NOT NULL,           -- microseconds from the grant; 0: as long as the session
    min_hold    bigint  NOT NULL DEFAULT 0,
    metadata    text    NOT NULL,
    enqueued_at bigint  NOT NULL,
    members     integer NOT NULL DEFAULT 1, -- of a cohort: how many requests share the place
    PRIMARY KEY (name, ticket)
) WITHOUT ROWID;
-- The wait-for graph goes from owners to the names that they wait for. It also serves queries by session alone. An attempt
-- has one place. An index of the attempts alone would be one more page to write for each place that comes or goes.
CREATE UNIQUE INDEX dblock_waiters_owner ON dblock_waiters (session_id, thread, attempt);

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

-- One row per slot of a job. The primary key makes the slot run once.
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

-- For people with a console: one row for each holder. A name that is free is not shown. Of a cohort, token is that of the
-- last member, as for Inspect and Break. Times are UTC.
CREATE VIEW dblock_who AS
SELECT l.name,
       CASE WHEN r.name IS NOT NULL AND l.capacity < 2147483647 THEN 'permits'
            WHEN r.name IS NOT NULL THEN 'shared'
            WHEN l.first_token < l.last_token THEN 'cohort'
            ELSE 'exclusive' END AS kind,
       r.units, coalesce(r.host, l.host) AS host, coalesce(r.thread, l.thread) AS thread, s.pid, s.app,
       coalesce(r.session_id, l.session_id) AS session, coalesce(r.token, l.last_token) AS token,
       strftime('%Y-%m-%d %H:%M:%f', coalesce(r.acquired_at, l.acquired_at) / 1000000.0, 'unixepoch') AS since,
       strftime('%Y-%m-%d %H:%M:%f', coalesce(min(h.expires_at, CASE WHEN r.name IS NULL THEN l.expires_at ELSE r.expires_at END),
                h.expires_at, CASE WHEN r.name IS NULL THEN l.expires_at ELSE r.expires_at END) / 1000000.0, 'unixepoch') AS until,
       coalesce(NOT s.dead AND h.expires_at > (SELECT c.now_us FROM dblock_clock c)
                AND coalesce(CASE WHEN r.name IS NULL THEN l.expires_at ELSE r.expires_at END > (SELECT c.now_us FROM dblock_clock c), true), false) AS alive,
       CASE WHEN l.waiters > 0 THEN (SELECT coalesce(sum(w.members), 0) FROM dblock_waiters w
                                      WHERE w.name = l.name AND w.attempt NOT GLOB 'candidate*') ELSE 0 END AS waiters,
       CASE WHEN l.waiters > 0 THEN ((SELECT c.now_us FROM dblock_clock c)
            - (SELECT min(w.enqueued_at) FROM dblock_waiters w WHERE w.name = l.name AND w.attempt NOT GLOB 'candidate*')) / 1000000.0 END AS longest_wait
  FROM dblock_locks l
  LEFT JOIN dblock_shares r ON r.name = l.name
  LEFT JOIN dblock_sessions s ON s.id = coalesce(r.session_id, l.session_id)
  LEFT JOIN dblock_heartbeats h ON h.session_id = coalesce(r.session_id, l.session_id)
 WHERE r.name IS NOT NULL OR l.session_id IS NOT NULL;

-- For people with a console: one row for each place in a queue.
CREATE VIEW dblock_queue AS
SELECT w.name, count(*) OVER (PARTITION BY w.name ORDER BY w.ticket) AS place, w.ticket,
       CASE WHEN w.units = 0 THEN 'exclusive' WHEN l.capacity < 2147483647 THEN 'permits' ELSE 'shared' END AS kind,
       nullif(w.units, 0) AS units, w.host, w.thread, s.pid, s.app, w.session_id AS session,
       strftime('%Y-%m-%d %H:%M:%f', w.enqueued_at / 1000000.0, 'unixepoch') AS since,
       coalesce(NOT s.dead AND h.expires_at > (SELECT c.now_us FROM dblock_clock c), false) AS alive, w.members,
       w.attempt GLOB 'candidate*' AS candidate
  FROM dblock_waiters w
  JOIN dblock_locks l ON l.name = w.name
  LEFT JOIN dblock_sessions s ON s.id = w.session_id
  LEFT JOIN dblock_heartbeats h ON h.session_id = w.session_id;

-- SQLite has no comments on tables and columns.
CREATE TABLE dblock_columns (
    table_name  text NOT NULL,
    column_name text NOT NULL,
    meaning     text NOT NULL,
    PRIMARY KEY (table_name, column_name)
) WITHOUT ROWID;
INSERT INTO dblock_columns (table_name, column_name, meaning) VALUES
('dblock_schema', '', 'Which builds can use these tables. One row.'),
('dblock_schema', 'version', 'which tables these are: the number of the last migration'),
('dblock_schema', 'usable_from', 'the oldest build that can work with these tables, by the version that it brings'),
('dblock_schema', 'database_id', 'random, one for each database; a copy has the same'),
('dblock_sessions', '', 'One row for each client: of the living, and of the dead until the reaper forgets them.'),
('dblock_sessions', 'id', 'random, one for each client'),
('dblock_sessions', 'host', 'of the client (WithHost)'),
('dblock_sessions', 'pid', 'process id of the client on its host'),
('dblock_sessions', 'app', 'of the client (WithApp)'),
('dblock_sessions', 'started_at', 'when the client opened the session, in microseconds since 1970 on the clock of this server'),
('dblock_sessions', 'dead', 'the session has ended for good: its locks are free to be taken over'),
('dblock_sessions', 'buried_by', 'session that saw on its own host that the process of this one has ended, or empty'),
('dblock_sessions', 'buried_because', 'what that session saw, or empty'),
('dblock_heartbeats', '', 'When each living session ends. The only row that a heartbeat writes.'),
('dblock_heartbeats', 'session_id', 'the session'),
('dblock_heartbeats', 'expires_at', 'when the session ends without a further heartbeat, in microseconds since 1970'),
('dblock_heartbeats', 'grants', 'how often another session has given it a lock, or taken one from it'),
('dblock_locks', '', 'One row for each name, held or not. It shows the holder of the whole name; holders of shares are in dblock_shares.'),
('dblock_locks', 'name', 'the name of the lock, compared byte for byte'),
('dblock_locks', 'session_id', 'session of the holder of the whole name, null where it has none'),
('dblock_locks', 'host', 'owner of the lock: its host'),
('dblock_locks', 'thread', 'owner of the lock: its thread'),
('dblock_locks', 'attempt', 'random, of the request that got the lock'),
('dblock_locks', 'token', 'the highest fencing token that was ever reserved for the name: it never falls'),
('dblock_locks', 'first_token', 'token of the first member of the cohort that has the lock, or of the only holder'),
('dblock_locks', 'last_token', 'token of the last member of the cohort that has the lock, or of the only holder'),
('dblock_locks', 'acquired_at', 'of the last grant, or of the last release while the name is free, in microseconds since 1970'),
('dblock_locks', 'expires_at', 'end of a fixed lease (Lease) in microseconds since 1970, null where the lock ends with its session'),
('dblock_locks', 'metadata', 'of the holder (Metadata), a JSON object or empty'),
('dblock_locks', 'asked', 'why another client asked the holder to release the lock (Ask)'),
('dblock_locks', 'shared_units', 'units that the holders of shares have'),
('dblock_locks', 'capacity', 'the smallest number of units that a holder states, while there are shares: 2147483647 of readers, else of a semaphore'),
('dblock_locks', 'mixed', 'the holders of shares state several numbers of units'),
('dblock_locks', 'rests_until', 'before this time the name is not granted (MinHold), in microseconds since 1970'),
('dblock_locks', 'waiters', 'number of requests in the queue: the members of all places'),
('dblock_locks', 'next_ticket', 'ticket of the next place in the queue'),
('dblock_shares', '', 'One row for each reader, and for each holder of permits.'),
('dblock_shares', 'name', 'the name of the lock'),
('dblock_shares', 'token', 'fencing token of the share'),
('dblock_shares', 'session_id', 'session of the holder'),
('dblock_shares', 'host', 'owner of the share: its host'),
('dblock_shares', 'thread', 'owner of the share: its thread'),
('dblock_shares', 'attempt', 'random, of the request that got the share'),
('dblock_shares', 'units', 'how many units it has: 1 of a reader, else permits'),
('dblock_shares', 'capacity', 'the number of all units, as its holder states it'),
('dblock_shares', 'acquired_at', 'when it was granted, in microseconds since 1970'),
('dblock_shares', 'expires_at', 'end of a fixed lease (Lease) in microseconds since 1970, null where the share ends with its session'),
('dblock_shares', 'metadata', 'of the holder (Metadata), a JSON object or empty'),
('dblock_shares', 'asked', 'why another client asked the holder to release the share (Ask)'),
('dblock_waiters', '', 'The queues: one row for each place, in the order of the tickets.'),
('dblock_waiters', 'name', 'the name of the lock'),
('dblock_waiters', 'ticket', 'place in the order of the queue: the lowest is served first'),
('dblock_waiters', 'session_id', 'session of the waiter'),
('dblock_waiters', 'host', 'owner that waits: its host'),
('dblock_waiters', 'thread', 'owner that waits: its thread'),
('dblock_waiters', 'attempt', 'random, of the request that waits; begins with "candidate" where that stands for election'),
('dblock_waiters', 'units', 'units that it wants, 0: the whole name'),
('dblock_waiters', 'capacity', 'the number of all units, as the waiter states it'),
('dblock_waiters', 'lease', 'fixed lease that it wants, in microseconds from the grant, 0 where the lock is to end with its session'),
('dblock_waiters', 'min_hold', 'how long the name is to rest from the grant on (MinHold), in microseconds'),
('dblock_waiters', 'metadata', 'of the waiter (Metadata), a JSON object or empty'),
('dblock_waiters', 'enqueued_at', 'since when it waits, in microseconds since 1970'),
('dblock_waiters', 'members', 'of a cohort: how many requests share the place'),
('dblock_events', '', 'The history, for as long as the reaper keeps it.'),
('dblock_events', 'id', 'rises, in no order of commits across names'),
('dblock_events', 'at', 'when it was written, in microseconds since 1970'),
('dblock_events', 'name', 'the name of the lock'),
('dblock_events', 'kind', 'granted, released, lost, expired, asked, broken, ran, or a kind of the application''s own'),
('dblock_events', 'token', 'fencing token of the lock, 0 where there is none'),
('dblock_events', 'session_id', 'session of the holder, or of the client that asked or broke'),
('dblock_events', 'host', 'host of the holder, or of the client that asked or broke'),
('dblock_events', 'thread', 'thread of the holder, or of the client that asked or broke'),
('dblock_events', 'detail', 'why'),
('dblock_events', 'metadata', 'of the holder (Metadata), a JSON object or empty'),
('dblock_runs', '', 'One row for each slot of a job (OncePer, OnceAt).'),
('dblock_runs', 'name', 'the name of the job'),
('dblock_runs', 'slot', 'number of the slot: the time divided by the interval, of OnceAt microseconds since 1970'),
('dblock_runs', 'token', 'fencing token of the lock under which it ran'),
('dblock_runs', 'session_id', 'session of the client that ran it'),
('dblock_runs', 'host', 'host that ran it'),
('dblock_runs', 'thread', 'thread that ran it'),
('dblock_runs', 'began_at', 'when it began, in microseconds since 1970'),
('dblock_runs', 'ended_at', 'when it ended, in microseconds since 1970, null where it runs or its session died'),
('dblock_runs', 'failed', 'it ended with an error'),
('dblock_runs', 'detail', 'the error'),
('dblock_runs', 'tries', 'how often it was begun'),
('dblock_runs', 'slot_ends', 'end of the slot, in microseconds since 1970'),
('dblock_watchers', '', 'Which sessions are told when something happens to a name (Watch).'),
('dblock_watchers', 'name', 'the name of the lock'),
('dblock_watchers', 'watch', 'random, one for each call of Watch'),
('dblock_watchers', 'session_id', 'the session that is told'),
('dblock_incarnation', '', 'Since when this database has had its data, for package quorum. One row, or none.'),
('dblock_incarnation', 'one', '1'),
('dblock_incarnation', 'since', 'since when, in microseconds since 1970'),
('dblock_incarnation', 'token_floor', 'no token before was above this one'),
('dblock_clock', '', 'The clock of this server.'),
('dblock_clock', 'now_us', 'now, in microseconds since 1970'),
('dblock_living', '', 'The sessions that something can be granted to.'),
('dblock_living', 'id', 'the session'),
('dblock_who', '', 'Who has which name, for people: one row for each holder.'),
('dblock_who', 'name', 'the name of the lock: ask for one with WHERE name ='),
('dblock_who', 'kind', 'exclusive, shared, permits, or cohort: requests of one client that pass the name on among themselves'),
('dblock_who', 'units', 'units of a share or permits, null of the whole name'),
('dblock_who', 'host', 'owner of the lock: its host'),
('dblock_who', 'thread', 'owner of the lock: its thread'),
('dblock_who', 'pid', 'process id of the client on its host'),
('dblock_who', 'app', 'of the client (WithApp)'),
('dblock_who', 'session', 'session of the client'),
('dblock_who', 'token', 'fencing token: of a cohort that of its last member'),
('dblock_who', 'since', 'when it was granted'),
('dblock_who', 'until', 'when it ends without a further heartbeat, or by its fixed lease'),
('dblock_who', 'alive', 'false: its time is over, and the next request or the reaper takes it over'),
('dblock_who', 'waiters', 'how many wait for the name, without candidates of an election'),
('dblock_who', 'longest_wait', 'how long the first of them has waited, in seconds'),
('dblock_queue', '', 'The queues, for people: one row for each place.'),
('dblock_queue', 'name', 'the name of the lock: ask for one with WHERE name ='),
('dblock_queue', 'place', '1 is served first'),
('dblock_queue', 'ticket', 'the order of the queue'),
('dblock_queue', 'kind', 'the kind of lock that it waits for: exclusive, shared or permits'),
('dblock_queue', 'units', 'units or permits that it wants, null: the whole name'),
('dblock_queue', 'host', 'owner that waits: its host'),
('dblock_queue', 'thread', 'owner that waits: its thread'),
('dblock_queue', 'pid', 'process id of the client on its host'),
('dblock_queue', 'app', 'of the client (WithApp)'),
('dblock_queue', 'session', 'session of the client'),
('dblock_queue', 'since', 'since when it waits'),
('dblock_queue', 'alive', 'false: its client is dead, and it is passed over'),
('dblock_queue', 'members', 'how many requests of its client get the name with this place, one after the other'),
('dblock_queue', 'candidate', 'it stands for election (package election), and waits for as long as another leads'),
('dblock_columns', '', 'The meaning of each table, view and column.'),
('dblock_columns', 'table_name', 'the table or view'),
('dblock_columns', 'column_name', 'the column, empty for the table itself'),
('dblock_columns', 'meaning', 'its meaning');

-- +goose Down
DROP TABLE dblock_columns;
DROP VIEW dblock_queue;
DROP VIEW dblock_who;
DROP TABLE dblock_incarnation;
DROP TABLE dblock_watchers;
DROP TABLE dblock_runs;
DROP TABLE dblock_events;
DROP TABLE dblock_waiters;
DROP TABLE dblock_shares;
DROP TABLE dblock_locks;
DROP VIEW dblock_living;
DROP TABLE dblock_heartbeats;
DROP TABLE dblock_sessions;
DROP VIEW dblock_clock;
DROP TABLE dblock_schema;
