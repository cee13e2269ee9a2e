-- +goose Up

-- Every statement can be run again: DDL commits as it goes, so that a migration that was cut off halfway is repeated.

-- Which builds can use these tables, and which database this is. One row. usable_from is the oldest build
-- (driver.SchemaVersion) that can use the tables. A migration that an older build cannot live with sets usable_from to its
-- own version. All others leave it, and only add. A client refuses a transaction of a database with another database_id.
CREATE TABLE IF NOT EXISTS dblock_schema (
    version     INT NOT NULL PRIMARY KEY,
    usable_from INT NOT NULL,
    database_id CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
-- Version 0: there is more to come. The id is made in a variable, which goes to replicas as it is. Where the tables were
-- emptied, dblock_locks has the id already, as a default that MariaDB quotes.
SET @dblock_id = (SELECT COALESCE(MAX(REPLACE(column_default, '''', '')), REPLACE(UUID(), '-', ''))
  FROM information_schema.columns
 WHERE table_schema = DATABASE() AND table_name = 'dblock_locks' AND column_name = 'database_id');
INSERT INTO dblock_schema (version, usable_from, database_id)
SELECT 0, 1, @dblock_id FROM DUAL WHERE NOT EXISTS (SELECT v.version FROM dblock_schema v);

-- Microseconds since 1970 on this server's clock at the start of the statement, whatever the session's time zone. With
-- the rights of the caller: a definer can be dropped.
CREATE OR REPLACE SQL SECURITY INVOKER VIEW dblock_clock AS
SELECT CAST(TIMESTAMPDIFF(MICROSECOND, TIMESTAMP '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS SIGNED) AS now_us;

-- One row per live client. It changes once, at death.
CREATE TABLE IF NOT EXISTS dblock_sessions (
    id         VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    host       TEXT       NOT NULL,
    pid        BIGINT     NOT NULL,
    app        TEXT       NOT NULL,
    started_at BIGINT     NOT NULL,
    dead       TINYINT(1) NOT NULL DEFAULT 0,
    -- Of a session that was buried: its process has ended, and another one on the same host has seen that.
    buried_by      VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
    buried_because VARCHAR(512) NOT NULL DEFAULT ''
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The only row that a heartbeat writes. Never referenced by a foreign key: that would lock it. No index on
-- expires_at: it would be written with every heartbeat, for a table of one row per client.
CREATE TABLE IF NOT EXISTS dblock_heartbeats (
    session_id VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    expires_at BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The locks. The primary key makes an insert a lock. Names are bytes: every collation of text merges some of them.
CREATE TABLE IF NOT EXISTS dblock_locks (
    name         VARBINARY(255) NOT NULL PRIMARY KEY,
    -- The holder of the whole name. session_id is null where there is none.
    session_id   VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin,
    host         TEXT       NOT NULL,
    thread       TEXT       NOT NULL,
    attempt      VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
    -- The highest token ever reserved for the name: it never falls. A cohort is a number of requests of one
    -- session that joined the queue together: one place, one attempt, and one grant with a token for each member. The row
    -- shows the first and the last of these tokens. Of a holder by itself both are its own.
    token        BIGINT     NOT NULL,
    first_token  BIGINT     NOT NULL DEFAULT 0,
    last_token   BIGINT     NOT NULL DEFAULT 0,
    acquired_at  BIGINT     NOT NULL, -- of the last grant; of a free name, of the last release
    expires_at   BIGINT,              -- fixed leases only
    metadata     MEDIUMTEXT NOT NULL,
    asked        TEXT, -- why another client wants it; null while the name is free
    -- 1 where the holder got the lock from another session and need not know yet. The holder's listener looks for it through
    -- the index.
    unseen       TINYINT    NOT NULL DEFAULT 0,
    -- The units of the name that are shared. capacity is the smallest number that a holder states. It counts while shared_units
    -- or waiters are above 0; otherwise the next request that shares the name sets it. mixed: the holders state several
    -- numbers, so that capacity may rise when one of them leaves.
    shared_units INT        NOT NULL DEFAULT 0,
    capacity     INT        NOT NULL DEFAULT 0,
    mixed        TINYINT(1) NOT NULL DEFAULT 0,
    rests_until  BIGINT     NOT NULL DEFAULT 0, -- before that time the name is not granted, held or not
    waiters      INT        NOT NULL DEFAULT 0,
    next_ticket  BIGINT     NOT NULL DEFAULT 1,
    first_ticket BIGINT     NOT NULL DEFAULT 0, -- no place has a lower ticket
    KEY dblock_locks_session (session_id, unseen),
    KEY dblock_locks_expires (expires_at),
    CONSTRAINT dblock_locks_name CHECK (OCTET_LENGTH(name) BETWEEN 1 AND 255)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The id of the database in each row of dblock_locks: LockTx reads it with the row that it locks. To read another row would
-- give the transaction its snapshot. It is a default, and no generated column: MariaDB's mysqldump writes the values of
-- generated columns into a dump of MySQL, which MySQL then refuses (3105). The two servers have no ALTER in common that can be
-- repeated, so the text of the statement depends on the columns that exist. sqlc has TiDB's parser, and reads no strings: for
-- sqlc the same statement stands in a comment of TiDB, which other parsers skip. TiDB finds the column there, and reads the end of
-- the line as a comment: it accepts one statement at a time.
SET @dblock_ddl = (SELECT IF(COUNT(*) = 0,
       CONCAT('ALTER TABLE dblock_locks ADD COLUMN database_id CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT ''',
              (SELECT s.database_id FROM dblock_schema s), ''''), 'DO 0')
  FROM information_schema.columns
 WHERE table_schema = DATABASE() AND table_name = 'dblock_locks' AND column_name = 'database_id');
PREPARE dblock_ddl FROM @dblock_ddl;
EXECUTE dblock_ddl;
DEALLOCATE PREPARE dblock_ddl;
/*T! ALTER TABLE dblock_locks ADD COLUMN IF NOT EXISTS database_id CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '' # */ DO 0
;

-- One row per reader or holder of permits. It changes only under the lock of the name's row in dblock_locks, except for
-- unseen, which is as it is there.
CREATE TABLE IF NOT EXISTS dblock_shares (
    name        VARBINARY(255) NOT NULL,
    token       BIGINT     NOT NULL,
    session_id  VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    host        TEXT       NOT NULL,
    thread      TEXT       NOT NULL,
    attempt     VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    units       INT        NOT NULL,
    capacity    INT        NOT NULL DEFAULT 0, -- the number of units that it states
    acquired_at BIGINT     NOT NULL,
    expires_at  BIGINT,              -- fixed leases only
    metadata    MEDIUMTEXT NOT NULL,
    asked       TEXT,
    unseen      TINYINT    NOT NULL DEFAULT 0,
    PRIMARY KEY (name, token),
    UNIQUE KEY dblock_shares_attempt (attempt),
    KEY dblock_shares_session (session_id, unseen),
    KEY dblock_shares_expires (expires_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The queue. Tickets come from the locked row of dblock_locks, never from AUTO_INCREMENT: there a later number can
-- commit first. The wait-for graph goes from owners to the names that they wait for.
CREATE TABLE IF NOT EXISTS dblock_waiters (
    name        VARBINARY(255) NOT NULL,
    ticket      BIGINT     NOT NULL,
    session_id  VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    host        TEXT       NOT NULL,
    thread      TEXT       NOT NULL,
    attempt     VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    units       INT        NOT NULL DEFAULT 0, -- 0: the whole name
    capacity    INT        NOT NULL DEFAULT 0, -- the number of units that it states
    lease       BIGINT     NOT NULL,           -- microseconds from the grant; 0: as long as the session
    min_hold    BIGINT     NOT NULL DEFAULT 0,
    metadata    MEDIUMTEXT NOT NULL,
    enqueued_at BIGINT     NOT NULL,
    members     INT        NOT NULL DEFAULT 1, -- of a cohort: how many requests share the place
    PRIMARY KEY (name, ticket),
    UNIQUE KEY dblock_waiters_attempt (attempt),
    KEY dblock_waiters_session (session_id),
    KEY dblock_waiters_owner (session_id, thread(64))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- One row per hold that was ever guarded, known by its attempt. Guard share-locks it. It is made under the lock of the name's
-- row. Every takeover of the hold counts takeovers up: above 0 no new guard of the hold begins. On TiDB guarded
-- transactions count it down, while it is not above 0.
CREATE TABLE IF NOT EXISTS dblock_guards (
    attempt    VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    name       VARBINARY(255) NOT NULL,
    session_id VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    takeovers  BIGINT NOT NULL DEFAULT 0
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Holds that a takeover wants, which a guarded transaction has refused: until then, no new guard of the hold begins.
CREATE TABLE IF NOT EXISTS dblock_wanted (
    attempt      VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    wanted_until BIGINT NOT NULL
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

-- One row per slot of a job. The primary key makes the slot run once.
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

-- For people with a console: one row for each holder. A name that is free is not shown. Of a cohort, token is that of the
-- last member, as for Inspect and Break. Times are of the session's time zone. The server puts the question into the view
-- (MERGE), so that it finds a name by the index.
CREATE OR REPLACE ALGORITHM = MERGE SQL SECURITY INVOKER VIEW dblock_who AS
SELECT l.name, CONVERT(l.name USING utf8mb4) AS name_text,
       CASE WHEN r.name IS NOT NULL AND l.capacity < 2147483647 THEN 'permits'
            WHEN r.name IS NOT NULL THEN 'shared'
            WHEN l.first_token < l.last_token THEN 'cohort'
            ELSE 'exclusive' END AS kind,
       r.units, COALESCE(r.host, l.host) AS host, COALESCE(r.thread, l.thread) AS thread, s.pid, s.app,
       COALESCE(r.session_id, l.session_id) AS session, COALESCE(r.token, l.last_token) AS token,
       FROM_UNIXTIME(COALESCE(r.acquired_at, l.acquired_at) * 0.000001) AS since,
       FROM_UNIXTIME(COALESCE(LEAST(h.expires_at, IF(r.name IS NULL, l.expires_at, r.expires_at)),
                              h.expires_at, IF(r.name IS NULL, l.expires_at, r.expires_at)) * 0.000001) AS `until`,
       COALESCE(s.dead = 0 AND h.expires_at > (SELECT c.now_us FROM dblock_clock c)
                AND COALESCE(IF(r.name IS NULL, l.expires_at, r.expires_at) > (SELECT c.now_us FROM dblock_clock c), 1), 0) AS alive,
       IF(l.waiters > 0, (SELECT CAST(COALESCE(SUM(w.members), 0) AS SIGNED) FROM dblock_waiters w
                           WHERE w.name = l.name AND w.attempt NOT LIKE 'candidate%'), 0) AS waiters,
       IF(l.waiters > 0, (SELECT (SELECT c.now_us FROM dblock_clock c) - MIN(w.enqueued_at) FROM dblock_waiters w
                           WHERE w.name = l.name AND w.attempt NOT LIKE 'candidate%'), NULL) * 0.000001 AS longest_wait
  FROM dblock_locks l
  LEFT JOIN dblock_shares r ON r.name = l.name
  LEFT JOIN dblock_sessions s ON s.id = COALESCE(r.session_id, l.session_id)
  LEFT JOIN dblock_heartbeats h ON h.session_id = COALESCE(r.session_id, l.session_id)
 WHERE r.name IS NOT NULL OR l.session_id IS NOT NULL;

-- For people with a console: one row for each place in a queue.
CREATE OR REPLACE SQL SECURITY INVOKER VIEW dblock_queue AS
SELECT w.name, CONVERT(w.name USING utf8mb4) AS name_text,
       COUNT(*) OVER (PARTITION BY w.name ORDER BY w.ticket) AS place, w.ticket,
       CASE WHEN w.units = 0 THEN 'exclusive' WHEN l.capacity < 2147483647 THEN 'permits' ELSE 'shared' END AS kind,
       NULLIF(w.units, 0) AS units, w.host, w.thread, s.pid, s.app, w.session_id AS session,
       FROM_UNIXTIME(w.enqueued_at * 0.000001) AS since,
       COALESCE(s.dead = 0 AND h.expires_at > (SELECT c.now_us FROM dblock_clock c), 0) AS alive, w.members,
       w.attempt LIKE 'candidate%' AS candidate
  FROM dblock_waiters w
  JOIN dblock_locks l ON l.name = w.name
  LEFT JOIN dblock_sessions s ON s.id = w.session_id
  LEFT JOIN dblock_heartbeats h ON h.session_id = w.session_id;

-- The meaning of tables and columns. A comment on a column would need an ALTER, which waits for every open transaction that
-- has used the table, and heartbeats wait behind it.
CREATE TABLE IF NOT EXISTS dblock_columns (
    table_name  VARCHAR(64)  NOT NULL,
    column_name VARCHAR(64)  NOT NULL,
    meaning     VARCHAR(255) NOT NULL,
    PRIMARY KEY (table_name, column_name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
REPLACE INTO dblock_columns (table_name, column_name, meaning) VALUES
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
('dblock_locks', 'unseen', '1: another session gave the lock to the holder, whose listener has not seen it yet'),
('dblock_locks', 'shared_units', 'units that the holders of shares have'),
('dblock_locks', 'capacity', 'the smallest number of units that a holder states, while there are shares: 2147483647 of readers, else of a semaphore'),
('dblock_locks', 'mixed', 'the holders of shares state several numbers of units'),
('dblock_locks', 'rests_until', 'before this time the name is not granted (MinHold), in microseconds since 1970'),
('dblock_locks', 'waiters', 'number of requests in the queue: the members of all places'),
('dblock_locks', 'next_ticket', 'ticket of the next place in the queue'),
('dblock_locks', 'first_ticket', 'no place in the queue has a lower ticket'),
('dblock_locks', 'database_id', 'that of dblock_schema'),
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
('dblock_shares', 'unseen', '1: another session gave the share to the holder, whose listener has not seen it yet'),
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
('dblock_guards', '', 'One row for each hold that was ever guarded. Guard share-locks it until the transaction ends.'),
('dblock_guards', 'attempt', 'of the hold'),
('dblock_guards', 'name', 'the name of the lock'),
('dblock_guards', 'session_id', 'session of the holder'),
('dblock_guards', 'takeovers', 'number of tries to take the lock from the holder'),
('dblock_wanted', '', 'Takeovers that a guarded transaction has refused, and that come back.'),
('dblock_wanted', 'attempt', 'of the hold that is to be taken over'),
('dblock_wanted', 'wanted_until', 'until this time no new guard of the hold begins, in microseconds since 1970'),
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
('dblock_who', '', 'Who has which name, for people: one row for each holder.'),
('dblock_who', 'name', 'the name of the lock: ask for one with WHERE name ='),
('dblock_who', 'name_text', 'the name as text, for consoles that show bytes in hexadecimal'),
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
('dblock_queue', 'name_text', 'the name as text, for consoles that show bytes in hexadecimal'),
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

-- Last, so that a migration that was cut off does not claim to be complete.
UPDATE dblock_schema SET version = 1 WHERE version = 0;

-- +goose Down
DROP TABLE IF EXISTS dblock_schema;
DROP VIEW IF EXISTS dblock_queue, dblock_who;
DROP TABLE IF EXISTS dblock_columns, dblock_incarnation, dblock_watchers, dblock_runs, dblock_events, dblock_wanted, dblock_guards,
    dblock_waiters, dblock_shares, dblock_locks, dblock_heartbeats, dblock_sessions;
DROP VIEW IF EXISTS dblock_clock;
