-- +goose Up

-- Which builds can use these tables, and which database this is. One row. usable_from is the oldest build
-- (driver.SchemaVersion) that can use the tables. A migration that an older build cannot live with sets usable_from to its
-- own version. All others leave it, and only add. A client refuses a transaction of a database with another database_id.
CREATE TABLE dblock_schema (
    version     integer NOT NULL PRIMARY KEY,
    usable_from integer NOT NULL,
    database_id text    NOT NULL
);
INSERT INTO dblock_schema (version, usable_from, database_id) VALUES (1, 1, replace(gen_random_uuid()::text, '-', ''));

-- Microseconds since 1970 on this server's clock, as it runs: now() stands still in a transaction.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION dblock_now() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;
-- +goose StatementEnd

-- Makes this transaction's commit wait for the disk where the application turned that off: a grant that a crash
-- takes back would be granted again while its holder believes in it.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION dblock_durable() RETURNS boolean LANGUAGE sql VOLATILE AS
$$ SELECT CASE current_setting('synchronous_commit')
          WHEN 'off' THEN set_config('synchronous_commit', 'on', true) = 'on' ELSE true END $$;
-- +goose StatementEnd

-- One row per live client. It changes once, at death.
CREATE TABLE dblock_sessions (
    id         text    COLLATE "C" PRIMARY KEY,
    host       text    NOT NULL,
    pid        bigint  NOT NULL,
    app        text    NOT NULL,
    started_at bigint  NOT NULL,
    dead       boolean NOT NULL DEFAULT false,
    -- Of a session that was buried: its process has ended, and another one on the same host has seen that.
    buried_by      text NOT NULL DEFAULT '',
    buried_because text NOT NULL DEFAULT ''
);

-- The only row that a heartbeat writes. Never referenced by a foreign key: that would lock it.
CREATE TABLE dblock_heartbeats (
    session_id text   COLLATE "C" PRIMARY KEY,
    expires_at bigint NOT NULL
) WITH (fillfactor = 50);

-- One row per name that has a row in dblock_locks. The primary key makes an insert a lock: dblock_make inserts here first.
CREATE TABLE dblock_names (
    name text COLLATE "C" PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 255)
);

-- The locks: one row per name. The row changes with each grant, and while any transaction of the database has an old snapshot,
-- VACUUM removes none of its versions. The index keeps an entry for each, which PostgreSQL reads when it looks for the row, and
-- when it writes a new entry. So the key has an epoch, which grows by one with every 32 grants: a search for the row of the
-- highest epoch reads the versions of that epoch, however old the snapshot.
CREATE TABLE dblock_locks (
    name         text    COLLATE "C" NOT NULL,
    epoch        bigint  NOT NULL DEFAULT 0,
    grants       integer NOT NULL DEFAULT 0, -- in this epoch
    -- The holder of the whole name. session_id is null where there is none.
    session_id   text    COLLATE "C",
    host         text    NOT NULL DEFAULT '',
    thread       text    NOT NULL DEFAULT '',
    attempt      text    COLLATE "C" NOT NULL DEFAULT '',
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
    -- No place in the queue has a lower ticket: a search for the first place begins here. The index has the places that have
    -- left until VACUUM comes, in front of all others.
    first_ticket bigint  NOT NULL DEFAULT 0,
    next_ticket  bigint  NOT NULL DEFAULT 1,
    PRIMARY KEY (name, epoch)
) WITH (fillfactor = 50, vacuum_truncate = false);
CREATE INDEX dblock_locks_expiry ON dblock_locks (expires_at) WHERE expires_at IS NOT NULL;
-- The next four statements leave the table empty, with 32 pages and with statistics. For a table of one page PostgreSQL plans to
-- read all of it, and connections keep that plan while the table grows. So 64 rows of 1,600 bytes, two to a page, are inserted,
-- counted by ANALYZE, and deleted; vacuum_truncate = false keeps the pages. n_distinct = -1 says that a name has one row, which
-- the key (name, epoch) does not say. An index made after ANALYZE would overwrite these statistics.
INSERT INTO dblock_locks (name, token, acquired_at, metadata)
SELECT i::text, 0, 0, (SELECT string_agg(md5(i::text || j), '') FROM generate_series(1, 50) j) FROM generate_series(1, 64) i;
ALTER TABLE dblock_locks ALTER COLUMN name SET (n_distinct = -1);
ANALYZE dblock_locks;
DELETE FROM dblock_locks;

-- A function that names tables has a body that PostgreSQL binds to them when it is made (BEGIN ATOMIC). A body, or a search_path,
-- that is a text would look for them in a schema that was renamed, or in the one that it was copied from.

-- The highest epoch of a name that the statement's snapshot shows; no row: the name has none. It is the first entry of the name in
-- the index, read from its end. generate_series makes no million rows: LIMIT 1 ends it at the first. It makes the planner expect
-- a million rows, so that it never chooses to read and sort all versions of the row in place of the index, whatever statistics
-- the table has. PostgreSQL inlines this query. A statement that looks for the row asks for this epoch or a later one: after a
-- wait for another transaction it decides by the newest version of the row, which may have begun an epoch.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION dblock_epoch(lock_name text) RETURNS SETOF bigint LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT first.epoch
      FROM (SELECT l.epoch, generate_series(1, 1000000) FROM dblock_locks l WHERE l.name = lock_name ORDER BY l.epoch DESC LIMIT 1) first;
END;
-- +goose StatementEnd

-- Calls a function of a name, and returns its answer: null where other transactions had a row locked for as long as lock_timeout says.
-- The end of the time is caught here, since the server logs the error of a statement. The text of this function names nothing of a
-- schema: who calls it states a function that PostgreSQL has bound. A block that catches errors is a subtransaction, with an id of its
-- own, so that only what others have locked is left to it.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION dblock_within(call regprocedure, lock_name text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    done boolean;
BEGIN
    EXECUTE format('SELECT %s($1)', call::regproc) INTO done USING lock_name;
    RETURN done;
EXCEPTION WHEN lock_not_available THEN
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- Locks the row of a name, behind the transactions that have it locked, and returns whether there is one.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION dblock_lock(lock_name text) RETURNS boolean LANGUAGE sql VOLATILE
BEGIN ATOMIC
    SELECT EXISTS (SELECT FROM dblock_locks l WHERE l.name = lock_name AND l.epoch >= (SELECT e FROM dblock_epoch(lock_name) e) FOR UPDATE);
END;
-- +goose StatementEnd

-- dblock_lock for as long as lock_timeout says: null where that is over.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION dblock_wait(lock_name text) RETURNS boolean LANGUAGE sql VOLATILE
BEGIN ATOMIC
    SELECT dblock_within(' dblock_lock(text)'::regprocedure, lock_name);
END;
-- +goose StatementEnd

-- Makes the rows of a name that had none, and returns whether it did. It waits for a transaction that makes or deletes them.
-- At REPEATABLE READ and above it fails if another transaction has made them since the snapshot. Each statement has a snapshot
-- of its own: the last one sees a row that was made while the one before it waited. If the row was purged between the two, the
-- last one makes none: without its row in dblock_names it would exclude nobody.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION dblock_insert(lock_name text) RETURNS boolean LANGUAGE sql VOLATILE
BEGIN ATOMIC
    INSERT INTO dblock_names AS n (name) SELECT lock_name WHERE NOT EXISTS (SELECT FROM dblock_epoch(lock_name))
        ON CONFLICT (name) DO UPDATE SET name = n.name;
    WITH made AS (
        INSERT INTO dblock_locks (name, token, acquired_at) SELECT n.name, dblock_now(), dblock_now() FROM dblock_names n
         WHERE n.name = lock_name AND NOT EXISTS (SELECT FROM dblock_epoch(lock_name))
        RETURNING 1
    ) SELECT EXISTS (SELECT FROM made);
END;
-- +goose StatementEnd

-- dblock_insert if the name has no row now, whatever the snapshot of the calling statement, and for as long as lock_timeout says: null
-- where that is over. Before version 18, PostgreSQL plans the statements of such a function with each call: that of a name with a row
-- is one, and a short one.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION dblock_make(lock_name text) RETURNS boolean LANGUAGE sql VOLATILE
BEGIN ATOMIC
    SELECT CASE WHEN EXISTS (SELECT FROM dblock_epoch(lock_name)) THEN false
                ELSE dblock_within(' dblock_insert(text)'::regprocedure, lock_name) END;
END;
-- +goose StatementEnd

-- One row per reader or holder of permits. It changes only under the lock of the name's row in dblock_locks.
CREATE TABLE dblock_shares (
    name        text    COLLATE "C" NOT NULL,
    token       bigint  NOT NULL,
    session_id  text    COLLATE "C" NOT NULL,
    host        text    NOT NULL,
    thread      text    NOT NULL,
    attempt     text    COLLATE "C" NOT NULL UNIQUE,
    units       integer NOT NULL,
    capacity    integer NOT NULL DEFAULT 0, -- the number of units that it states
    acquired_at bigint  NOT NULL,
    expires_at  bigint, -- fixed leases only
    metadata    text    NOT NULL DEFAULT '',
    asked       text    NOT NULL DEFAULT '',
    PRIMARY KEY (name, token)
);
CREATE INDEX dblock_shares_expiry ON dblock_shares (expires_at) WHERE expires_at IS NOT NULL;

-- The queue. Tickets come from the locked row of dblock_locks, never from a sequence: in a sequence a later number
-- can commit first.
CREATE TABLE dblock_waiters (
    name        text    COLLATE "C" NOT NULL,
    ticket      bigint  NOT NULL,
    session_id  text    COLLATE "C" NOT NULL,
    host        text    NOT NULL,
    thread      text    NOT NULL,
    attempt     text    COLLATE "C" NOT NULL UNIQUE,
    units       integer NOT NULL DEFAULT 0, -- 0: the whole name
    capacity    integer NOT NULL DEFAULT 0, -- the number of units that it states
    lease       bigint  NOT NULL,           -- microseconds from the grant; 0: as long as the session
    min_hold    bigint  NOT NULL DEFAULT 0,
    metadata    text    NOT NULL,
    enqueued_at bigint  NOT NULL,
    members     integer NOT NULL DEFAULT 1, -- of a cohort: how many requests share the place
    PRIMARY KEY (name, ticket)
) WITH (fillfactor = 50, vacuum_truncate = false);
-- For statements that name a session. Without the condition, which is always true, a search for a name may read all of this
-- index, since it is smaller than the primary key.
CREATE INDEX dblock_waiters_session ON dblock_waiters (session_id, name, ticket) WHERE session_id IS NOT NULL;
-- The wait-for graph goes from owners to the names that they wait for.
CREATE INDEX dblock_waiters_owner ON dblock_waiters (session_id, thread);
-- 32 pages and first statistics, for the reason given at dblock_locks. n_distinct is not set: a name may have many places.
INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at)
SELECT '', i, i::text, '', i::text, i::text, 0, (SELECT string_agg(md5(i::text || j), '') FROM generate_series(1, 50) j), 0 FROM generate_series(1, 64) i;
ANALYZE dblock_waiters;
DELETE FROM dblock_waiters;

-- All holders of a name; units 0: the whole of it.
-- A search for those of one name asks for dblock_epoch or a later one, as in dblock_locks; shares are in the last epoch.
CREATE VIEW dblock_holders AS
SELECT name, 9223372036854775807 AS epoch, token, session_id, host, thread, attempt, units, acquired_at, expires_at, metadata, asked
  FROM dblock_shares
UNION ALL
SELECT name, epoch, last_token, session_id, host, thread, attempt, 0, acquired_at, expires_at, metadata, asked
  FROM dblock_locks WHERE session_id IS NOT NULL;

-- The claims of a session: the holds of its own in known, a JSON array of objects with Name and Token, and all claims in one
-- part of the tables. No index leads from a session to its locks: such an index would get an entry with each grant. A walk that
-- counts its steps up from 0 has read each part after as many steps as there are parts. Step -1 reads all parts, and so does a
-- list of known names that is about as long as the tables: a page takes less time than a name. The names in quotes begin with a
-- space, so that package tables puts the schema before them as elsewhere.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION dblock_claims(of_session text, known jsonb, step bigint)
RETURNS TABLE (session text, name text, attempt text, token bigint, asked text) LANGUAGE sql STABLE
BEGIN ATOMIC
    WITH pages AS (
        SELECT pg_relation_size(' dblock_locks'::regclass) / block AS locks,
               pg_relation_size(' dblock_shares'::regclass) / block AS shares,
               pg_relation_size(' dblock_waiters'::regclass) / block AS places
          FROM (SELECT current_setting('block_size')::bigint AS block) b
    ), walk AS (
        SELECT p.locks, p.shares, p.places, step < 0 OR jsonb_array_length(known) + 128 >= p.locks + p.shares + p.places AS whole FROM pages p
    ), start AS (
        SELECT CASE WHEN w.whole THEN 4294967295 ELSE 128 END AS part,
               CASE WHEN w.whole THEN 0 ELSE 128 * (step % (w.locks / 128 + 1)) END AS locks,
               CASE WHEN w.whole THEN 0 ELSE 128 * (step % (w.shares / 128 + 1)) END AS shares,
               CASE WHEN w.whole THEN 0 ELSE 128 * (step % (w.places / 128 + 1)) END AS places,
               CASE WHEN w.whole THEN '[]' ELSE known END AS known
          FROM walk w
    ), bounds AS (
        SELECT format('(%s,0)', s.locks)::tid AS locks, format('(%s,0)', least(s.locks + s.part, 4294967295))::tid AS locks_end,
               format('(%s,0)', s.shares)::tid AS shares, format('(%s,0)', least(s.shares + s.part, 4294967295))::tid AS shares_end,
               format('(%s,0)', s.places)::tid AS places, format('(%s,0)', least(s.places + s.part, 4294967295))::tid AS places_end
          FROM start s
    ), held AS (
        SELECT (k.r ->> 'Name')::text COLLATE "C" AS name, (k.r ->> 'Token')::bigint AS token
          FROM start s CROSS JOIN LATERAL jsonb_array_elements(s.known) k(r)
    )
    SELECT c.session_id, c.name, c.attempt, c.last_token, c.asked
      FROM (SELECT h.name, (SELECT e FROM dblock_epoch(h.name) e) AS epoch FROM held h) k
     CROSS JOIN LATERAL (
           SELECT l.session_id, l.name, l.attempt, l.last_token, l.asked FROM dblock_locks l
            WHERE l.name = k.name AND l.epoch >= k.epoch OFFSET 0) c
     WHERE c.session_id = of_session
     UNION
    SELECT s.session_id, s.name, s.attempt, s.token, s.asked
      FROM held k
     CROSS JOIN LATERAL (
           SELECT h.session_id, h.name, h.attempt, h.token, h.asked FROM dblock_shares h
            WHERE h.name = k.name AND h.token = k.token OFFSET 0) s
     WHERE s.session_id = of_session
     UNION
    SELECT l.session_id, l.name, l.attempt, l.last_token, l.asked
      FROM (SELECT a.session_id, a.name, a.attempt, a.last_token, a.asked FROM dblock_locks a
             WHERE a.ctid >= (SELECT b.locks FROM bounds b) AND a.ctid < (SELECT b.locks_end FROM bounds b) OFFSET 0) l
     WHERE l.session_id = of_session
     UNION
    SELECT s.session_id, s.name, s.attempt, s.token, s.asked
      FROM (SELECT a.session_id, a.name, a.attempt, a.token, a.asked FROM dblock_shares a
             WHERE a.ctid >= (SELECT b.shares FROM bounds b) AND a.ctid < (SELECT b.shares_end FROM bounds b) OFFSET 0) s
     WHERE s.session_id = of_session
     UNION
    SELECT w.session_id, w.name, w.attempt, 0, ''
      FROM (SELECT a.session_id, a.name, a.attempt FROM dblock_waiters a
             WHERE a.ctid >= (SELECT b.places FROM bounds b) AND a.ctid < (SELECT b.places_end FROM bounds b) OFFSET 0) w
     WHERE w.session_id = of_session;
END;
-- +goose StatementEnd

-- One row per hold that was ever guarded, known by its attempt. Guard share-locks it. It is made under the lock of the name's
-- row. Every takeover of the hold counts takeovers up: a guarded transaction with an older snapshot must see that.
CREATE TABLE dblock_guards (
    attempt    text   COLLATE "C" PRIMARY KEY,
    name       text   COLLATE "C" NOT NULL,
    session_id text   COLLATE "C" NOT NULL,
    takeovers  bigint NOT NULL DEFAULT 0
);

-- Holds that a takeover wants, which a guarded transaction has refused: until then, no new guard of the hold begins.
CREATE TABLE dblock_wanted (
    attempt      text   COLLATE "C" PRIMARY KEY,
    wanted_until bigint NOT NULL
);

-- Raises what dblock_guard has found. It names no table.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION dblock_refuse(lock_name text, lock_token bigint, passed_on boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF passed_on THEN
        RAISE EXCEPTION 'dblock: the lock "%" is passed on among the requests of one process: which of them has token % is known there only',
            lock_name, lock_token USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    RAISE EXCEPTION 'dblock: the lock "%" is not held with token %', lock_name, lock_token USING ERRCODE = 'object_not_in_prerequisite_state';
END $$;
-- +goose StatementEnd

-- For transactions in any language: it raises unless a lock is held with this token, and until the transaction ends no client
-- takes the lock over, or releases it. Until then no client can queue for the name, either: the name's row is locked. A lock
-- that a process passes on among its own requests has several tokens in its row, and is refused. The second statement sees the
-- row that the first has locked: it has a snapshot of its own, or the first has failed.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION dblock_guard(lock_name text, lock_token bigint) RETURNS void LANGUAGE sql VOLATILE
BEGIN ATOMIC
    SELECT FROM dblock_locks l WHERE l.name = lock_name AND l.epoch >= (SELECT e FROM dblock_epoch(lock_name) e) FOR SHARE;
    SELECT dblock_refuse(lock_name, lock_token, coalesce(bool_or(l.session_id IS NOT NULL AND lock_token BETWEEN l.first_token AND l.last_token), false))
      FROM dblock_locks l
     WHERE l.name = lock_name AND l.epoch >= (SELECT e FROM dblock_epoch(lock_name) e)
    HAVING NOT coalesce(bool_or(l.session_id IS NOT NULL AND l.first_token = lock_token AND l.last_token = lock_token), false)
       AND NOT EXISTS (SELECT FROM dblock_shares s WHERE s.name = lock_name AND s.token = lock_token);
END;
-- +goose StatementEnd

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

-- One row per slot of a job. The primary key makes the slot run once.
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

-- For people with a console: one row for each holder. A name that is free is not shown. Of a cohort, token is that of the
-- last member, as for Inspect and Break.
CREATE VIEW dblock_who AS
SELECT l.name,
       CASE WHEN r.name IS NOT NULL AND l.capacity < 2147483647 THEN 'permits'
            WHEN r.name IS NOT NULL THEN 'shared'
            WHEN l.first_token < l.last_token THEN 'cohort'
            ELSE 'exclusive' END AS kind,
       r.units, coalesce(r.host, l.host) AS host, coalesce(r.thread, l.thread) AS thread, s.pid, s.app,
       coalesce(r.session_id, l.session_id) AS session, coalesce(r.token, l.last_token) AS token,
       timestamptz 'epoch' + coalesce(r.acquired_at, l.acquired_at) * interval '1 microsecond' AS since,
       timestamptz 'epoch' + least(h.expires_at, f.expires_at) * interval '1 microsecond' AS until,
       coalesce(NOT s.dead AND h.expires_at > dblock_now() AND (f.expires_at IS NULL OR f.expires_at > dblock_now()), false) AS alive,
       coalesce(q.waiters, 0)::integer AS waiters, (dblock_now() - q.first) * interval '1 microsecond' AS longest_wait
  FROM dblock_locks l
  LEFT JOIN dblock_shares r ON r.name = l.name
 CROSS JOIN LATERAL (SELECT CASE WHEN r.name IS NULL THEN l.expires_at ELSE r.expires_at END AS expires_at) f
  LEFT JOIN dblock_sessions s ON s.id = coalesce(r.session_id, l.session_id)
  LEFT JOIN dblock_heartbeats h ON h.session_id = coalesce(r.session_id, l.session_id)
  LEFT JOIN (SELECT w.name, sum(w.members) AS waiters, min(w.enqueued_at) AS first FROM dblock_waiters w
              WHERE w.attempt NOT LIKE 'candidate%' GROUP BY w.name) q
         ON q.name = l.name
 WHERE r.name IS NOT NULL OR l.session_id IS NOT NULL;

-- For people with a console: one row for each place in a queue.
CREATE VIEW dblock_queue AS
SELECT w.name, count(*) OVER (PARTITION BY w.name ORDER BY w.ticket) AS place, w.ticket,
       CASE WHEN w.units = 0 THEN 'exclusive' WHEN l.capacity < 2147483647 THEN 'permits' ELSE 'shared' END AS kind,
       nullif(w.units, 0) AS units, w.host, w.thread, s.pid, s.app, w.session_id AS session,
       timestamptz 'epoch' + w.enqueued_at * interval '1 microsecond' AS since,
       coalesce(NOT s.dead AND h.expires_at > dblock_now(), false) AS alive, w.members,
       w.attempt LIKE 'candidate%' AS candidate
  FROM dblock_waiters w
  JOIN dblock_locks l ON l.name = w.name
  LEFT JOIN dblock_sessions s ON s.id = w.session_id
  LEFT JOIN dblock_heartbeats h ON h.session_id = w.session_id;

-- +goose StatementBegin
COMMENT ON TABLE dblock_schema IS 'Which builds can use these tables. One row.';
COMMENT ON COLUMN dblock_schema.version IS 'which tables these are: the number of the last migration';
COMMENT ON COLUMN dblock_schema.usable_from IS 'the oldest build that can work with these tables, by the version that it brings';
COMMENT ON COLUMN dblock_schema.database_id IS 'random, one for each database; a copy has the same';
COMMENT ON TABLE dblock_sessions IS 'One row for each client: of the living, and of the dead until the reaper forgets them.';
COMMENT ON COLUMN dblock_sessions.id IS 'random, one for each client';
COMMENT ON COLUMN dblock_sessions.host IS 'of the client (WithHost)';
COMMENT ON COLUMN dblock_sessions.pid IS 'process id of the client on its host';
COMMENT ON COLUMN dblock_sessions.app IS 'of the client (WithApp)';
COMMENT ON COLUMN dblock_sessions.started_at IS 'when the client opened the session, in microseconds since 1970 on the clock of this server';
COMMENT ON COLUMN dblock_sessions.dead IS 'the session has ended for good: its locks are free to be taken over';
COMMENT ON COLUMN dblock_sessions.buried_by IS 'session that saw on its own host that the process of this one has ended, or empty';
COMMENT ON COLUMN dblock_sessions.buried_because IS 'what that session saw, or empty';
COMMENT ON TABLE dblock_heartbeats IS 'When each living session ends. The only row that a heartbeat writes.';
COMMENT ON COLUMN dblock_heartbeats.session_id IS 'the session';
COMMENT ON COLUMN dblock_heartbeats.expires_at IS 'when the session ends without a further heartbeat, in microseconds since 1970';
COMMENT ON TABLE dblock_names IS 'The names that have a row in dblock_locks.';
COMMENT ON COLUMN dblock_names.name IS 'the name of the lock, compared byte for byte';
COMMENT ON TABLE dblock_locks IS 'One row for each name, held or not. It shows the holder of the whole name; holders of shares are in dblock_shares.';
COMMENT ON COLUMN dblock_locks.name IS 'the name of the lock, compared byte for byte';
COMMENT ON COLUMN dblock_locks.epoch IS 'grows by one with every 32 grants, so that a search for the row reads few dead versions';
COMMENT ON COLUMN dblock_locks.grants IS 'grants in this epoch';
COMMENT ON COLUMN dblock_locks.session_id IS 'session of the holder of the whole name, null where it has none';
COMMENT ON COLUMN dblock_locks.host IS 'owner of the lock: its host';
COMMENT ON COLUMN dblock_locks.thread IS 'owner of the lock: its thread';
COMMENT ON COLUMN dblock_locks.attempt IS 'random, of the request that got the lock';
COMMENT ON COLUMN dblock_locks.token IS 'the highest fencing token that was ever reserved for the name: it never falls';
COMMENT ON COLUMN dblock_locks.first_token IS 'token of the first member of the cohort that has the lock, or of the only holder';
COMMENT ON COLUMN dblock_locks.last_token IS 'token of the last member of the cohort that has the lock, or of the only holder';
COMMENT ON COLUMN dblock_locks.acquired_at IS 'of the last grant, or of the last release while the name is free, in microseconds since 1970';
COMMENT ON COLUMN dblock_locks.expires_at IS 'end of a fixed lease (Lease) in microseconds since 1970, null where the lock ends with its session';
COMMENT ON COLUMN dblock_locks.metadata IS 'of the holder (Metadata), a JSON object or empty';
COMMENT ON COLUMN dblock_locks.asked IS 'why another client asked the holder to release the lock (Ask)';
COMMENT ON COLUMN dblock_locks.shared_units IS 'units that the holders of shares have';
COMMENT ON COLUMN dblock_locks.capacity IS 'the smallest number of units that a holder states, while there are shares: 2147483647 of readers, else of a semaphore';
COMMENT ON COLUMN dblock_locks.mixed IS 'the holders of shares state several numbers of units';
COMMENT ON COLUMN dblock_locks.rests_until IS 'before this time the name is not granted (MinHold), in microseconds since 1970';
COMMENT ON COLUMN dblock_locks.waiters IS 'number of requests in the queue: the members of all places';
COMMENT ON COLUMN dblock_locks.first_ticket IS 'no place in the queue has a lower ticket';
COMMENT ON COLUMN dblock_locks.next_ticket IS 'ticket of the next place in the queue';
COMMENT ON TABLE dblock_shares IS 'One row for each reader, and for each holder of permits.';
COMMENT ON COLUMN dblock_shares.name IS 'the name of the lock';
COMMENT ON COLUMN dblock_shares.token IS 'fencing token of the share';
COMMENT ON COLUMN dblock_shares.session_id IS 'session of the holder';
COMMENT ON COLUMN dblock_shares.host IS 'owner of the share: its host';
COMMENT ON COLUMN dblock_shares.thread IS 'owner of the share: its thread';
COMMENT ON COLUMN dblock_shares.attempt IS 'random, of the request that got the share';
COMMENT ON COLUMN dblock_shares.units IS 'how many units it has: 1 of a reader, else permits';
COMMENT ON COLUMN dblock_shares.capacity IS 'the number of all units, as its holder states it';
COMMENT ON COLUMN dblock_shares.acquired_at IS 'when it was granted, in microseconds since 1970';
COMMENT ON COLUMN dblock_shares.expires_at IS 'end of a fixed lease (Lease) in microseconds since 1970, null where the share ends with its session';
COMMENT ON COLUMN dblock_shares.metadata IS 'of the holder (Metadata), a JSON object or empty';
COMMENT ON COLUMN dblock_shares.asked IS 'why another client asked the holder to release the share (Ask)';
COMMENT ON TABLE dblock_waiters IS 'The queues: one row for each place, in the order of the tickets.';
COMMENT ON COLUMN dblock_waiters.name IS 'the name of the lock';
COMMENT ON COLUMN dblock_waiters.ticket IS 'place in the order of the queue: the lowest is served first';
COMMENT ON COLUMN dblock_waiters.session_id IS 'session of the waiter';
COMMENT ON COLUMN dblock_waiters.host IS 'owner that waits: its host';
COMMENT ON COLUMN dblock_waiters.thread IS 'owner that waits: its thread';
COMMENT ON COLUMN dblock_waiters.attempt IS 'random, of the request that waits; begins with "candidate" where that stands for election';
COMMENT ON COLUMN dblock_waiters.units IS 'units that it wants, 0: the whole name';
COMMENT ON COLUMN dblock_waiters.capacity IS 'the number of all units, as the waiter states it';
COMMENT ON COLUMN dblock_waiters.lease IS 'fixed lease that it wants, in microseconds from the grant, 0 where the lock is to end with its session';
COMMENT ON COLUMN dblock_waiters.min_hold IS 'how long the name is to rest from the grant on (MinHold), in microseconds';
COMMENT ON COLUMN dblock_waiters.metadata IS 'of the waiter (Metadata), a JSON object or empty';
COMMENT ON COLUMN dblock_waiters.enqueued_at IS 'since when it waits, in microseconds since 1970';
COMMENT ON COLUMN dblock_waiters.members IS 'of a cohort: how many requests share the place';
COMMENT ON TABLE dblock_guards IS 'One row for each hold that was ever guarded. Guard share-locks it until the transaction ends.';
COMMENT ON COLUMN dblock_guards.attempt IS 'of the hold';
COMMENT ON COLUMN dblock_guards.name IS 'the name of the lock';
COMMENT ON COLUMN dblock_guards.session_id IS 'session of the holder';
COMMENT ON COLUMN dblock_guards.takeovers IS 'number of tries to take the lock from the holder';
COMMENT ON TABLE dblock_wanted IS 'Takeovers that a guarded transaction has refused, and that come back.';
COMMENT ON COLUMN dblock_wanted.attempt IS 'of the hold that is to be taken over';
COMMENT ON COLUMN dblock_wanted.wanted_until IS 'until this time no new guard of the hold begins, in microseconds since 1970';
COMMENT ON TABLE dblock_events IS 'The history, for as long as the reaper keeps it.';
COMMENT ON COLUMN dblock_events.id IS 'rises, in no order of commits across names';
COMMENT ON COLUMN dblock_events.at IS 'when it was written, in microseconds since 1970';
COMMENT ON COLUMN dblock_events.name IS 'the name of the lock';
COMMENT ON COLUMN dblock_events.kind IS 'granted, released, lost, expired, asked, broken, ran, or a kind of the application''s own';
COMMENT ON COLUMN dblock_events.token IS 'fencing token of the lock, 0 where there is none';
COMMENT ON COLUMN dblock_events.session_id IS 'session of the holder, or of the client that asked or broke';
COMMENT ON COLUMN dblock_events.host IS 'host of the holder, or of the client that asked or broke';
COMMENT ON COLUMN dblock_events.thread IS 'thread of the holder, or of the client that asked or broke';
COMMENT ON COLUMN dblock_events.detail IS 'why';
COMMENT ON COLUMN dblock_events.metadata IS 'of the holder (Metadata), a JSON object or empty';
COMMENT ON TABLE dblock_runs IS 'One row for each slot of a job (OncePer, OnceAt).';
COMMENT ON COLUMN dblock_runs.name IS 'the name of the job';
COMMENT ON COLUMN dblock_runs.slot IS 'number of the slot: the time divided by the interval, of OnceAt microseconds since 1970';
COMMENT ON COLUMN dblock_runs.token IS 'fencing token of the lock under which it ran';
COMMENT ON COLUMN dblock_runs.session_id IS 'session of the client that ran it';
COMMENT ON COLUMN dblock_runs.host IS 'host that ran it';
COMMENT ON COLUMN dblock_runs.thread IS 'thread that ran it';
COMMENT ON COLUMN dblock_runs.began_at IS 'when it began, in microseconds since 1970';
COMMENT ON COLUMN dblock_runs.ended_at IS 'when it ended, in microseconds since 1970, null where it runs or its session died';
COMMENT ON COLUMN dblock_runs.failed IS 'it ended with an error';
COMMENT ON COLUMN dblock_runs.detail IS 'the error';
COMMENT ON COLUMN dblock_runs.tries IS 'how often it was begun';
COMMENT ON COLUMN dblock_runs.slot_ends IS 'end of the slot, in microseconds since 1970';
COMMENT ON TABLE dblock_watchers IS 'Which sessions are told when something happens to a name (Watch).';
COMMENT ON COLUMN dblock_watchers.name IS 'the name of the lock';
COMMENT ON COLUMN dblock_watchers.watch IS 'random, one for each call of Watch';
COMMENT ON COLUMN dblock_watchers.session_id IS 'the session that is told';
COMMENT ON TABLE dblock_incarnation IS 'Since when this database has had its data, for package quorum. One row, or none.';
COMMENT ON COLUMN dblock_incarnation.one IS '1';
COMMENT ON COLUMN dblock_incarnation.since IS 'since when, in microseconds since 1970';
COMMENT ON COLUMN dblock_incarnation.token_floor IS 'no token before was above this one';
COMMENT ON VIEW dblock_holders IS 'Everybody who holds a name or a share of it, for the library. For people: dblock_who.';
COMMENT ON COLUMN dblock_holders.name IS 'the name of the lock';
COMMENT ON COLUMN dblock_holders.epoch IS 'of the row in dblock_locks; of a share the highest number';
COMMENT ON COLUMN dblock_holders.token IS 'fencing token by which the library knows the holder';
COMMENT ON COLUMN dblock_holders.session_id IS 'session of the holder';
COMMENT ON COLUMN dblock_holders.host IS 'owner of the lock: its host';
COMMENT ON COLUMN dblock_holders.thread IS 'owner of the lock: its thread';
COMMENT ON COLUMN dblock_holders.attempt IS 'random, of the request that got the lock';
COMMENT ON COLUMN dblock_holders.units IS 'units of a share, 0: the whole name';
COMMENT ON COLUMN dblock_holders.acquired_at IS 'when it was granted, in microseconds since 1970';
COMMENT ON COLUMN dblock_holders.expires_at IS 'end of a fixed lease (Lease) in microseconds since 1970';
COMMENT ON COLUMN dblock_holders.metadata IS 'of the holder (Metadata), a JSON object or empty';
COMMENT ON COLUMN dblock_holders.asked IS 'why another client asked the holder to release the lock (Ask)';
COMMENT ON VIEW dblock_who IS 'Who has which name, for people: one row for each holder.';
COMMENT ON COLUMN dblock_who.name IS 'the name of the lock: ask for one with WHERE name =';
COMMENT ON COLUMN dblock_who.kind IS 'exclusive, shared, permits, or cohort: requests of one client that pass the name on among themselves';
COMMENT ON COLUMN dblock_who.units IS 'units of a share or permits, null of the whole name';
COMMENT ON COLUMN dblock_who.host IS 'owner of the lock: its host';
COMMENT ON COLUMN dblock_who.thread IS 'owner of the lock: its thread';
COMMENT ON COLUMN dblock_who.pid IS 'process id of the client on its host';
COMMENT ON COLUMN dblock_who.app IS 'of the client (WithApp)';
COMMENT ON COLUMN dblock_who.session IS 'session of the client';
COMMENT ON COLUMN dblock_who.token IS 'fencing token: of a cohort that of its last member';
COMMENT ON COLUMN dblock_who.since IS 'when it was granted';
COMMENT ON COLUMN dblock_who.until IS 'when it ends without a further heartbeat, or by its fixed lease';
COMMENT ON COLUMN dblock_who.alive IS 'false: its time is over, and the next request or the reaper takes it over';
COMMENT ON COLUMN dblock_who.waiters IS 'how many wait for the name, without candidates of an election';
COMMENT ON COLUMN dblock_who.longest_wait IS 'how long the first of them has waited';
COMMENT ON VIEW dblock_queue IS 'The queues, for people: one row for each place.';
COMMENT ON COLUMN dblock_queue.name IS 'the name of the lock: ask for one with WHERE name =';
COMMENT ON COLUMN dblock_queue.place IS '1 is served first';
COMMENT ON COLUMN dblock_queue.ticket IS 'the order of the queue';
COMMENT ON COLUMN dblock_queue.kind IS 'the kind of lock that it waits for: exclusive, shared or permits';
COMMENT ON COLUMN dblock_queue.units IS 'units or permits that it wants, null: the whole name';
COMMENT ON COLUMN dblock_queue.host IS 'owner that waits: its host';
COMMENT ON COLUMN dblock_queue.thread IS 'owner that waits: its thread';
COMMENT ON COLUMN dblock_queue.pid IS 'process id of the client on its host';
COMMENT ON COLUMN dblock_queue.app IS 'of the client (WithApp)';
COMMENT ON COLUMN dblock_queue.session IS 'session of the client';
COMMENT ON COLUMN dblock_queue.since IS 'since when it waits';
COMMENT ON COLUMN dblock_queue.alive IS 'false: its client is dead, and it is passed over';
COMMENT ON COLUMN dblock_queue.members IS 'how many requests of its client get the name with this place, one after the other';
COMMENT ON COLUMN dblock_queue.candidate IS 'it stands for election (package election), and waits for as long as another leads';
COMMENT ON FUNCTION dblock_now() IS 'The clock of this server, in microseconds since 1970.';
COMMENT ON FUNCTION dblock_epoch(text) IS 'The highest epoch of a name, null where it has no row.';
COMMENT ON FUNCTION dblock_claims(text, jsonb, bigint) IS 'The locks, shares and places in queues of a session.';
COMMENT ON FUNCTION dblock_lock(text) IS 'Locks the row of a name, for dblock_wait.';
COMMENT ON FUNCTION dblock_wait(text) IS 'Locks the row of a name; null: others had it locked for as long as lock_timeout says.';
COMMENT ON FUNCTION dblock_within(regprocedure, text) IS 'Catches the end of lock_timeout, for dblock_wait and dblock_make.';
COMMENT ON FUNCTION dblock_make(text) IS 'Makes the rows of a name, if it has none.';
COMMENT ON FUNCTION dblock_insert(text) IS 'Makes the rows of a name, for dblock_make.';
COMMENT ON FUNCTION dblock_durable() IS 'Makes the commit of this transaction wait for the disk.';
-- +goose StatementEnd

-- +goose Down
DROP VIEW dblock_queue, dblock_who, dblock_holders;
DROP FUNCTION dblock_make(text), dblock_insert(text), dblock_wait(text), dblock_lock(text), dblock_within(regprocedure, text), dblock_guard(text, bigint), dblock_claims(text, jsonb, bigint), dblock_epoch(text);
-- dblock_locks first, as statements of a client read: otherwise a client that runs on deadlocks with this.
DROP TABLE dblock_locks, dblock_names, dblock_shares, dblock_waiters, dblock_guards, dblock_wanted, dblock_heartbeats, dblock_sessions,
    dblock_events, dblock_runs, dblock_watchers, dblock_incarnation, dblock_schema;
DROP FUNCTION dblock_refuse(text, bigint, boolean), dblock_now(), dblock_durable();
