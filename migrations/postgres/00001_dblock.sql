-- +goose Up

-- The version of these tables, whatever ran the migrations, in whatever history.
CREATE TABLE dblock_schema (version integer NOT NULL);
INSERT INTO dblock_schema (version) VALUES (1);

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

-- One row per live client. It changes once, at death, so that a transaction can share-lock it to keep its lock.
CREATE TABLE dblock_sessions (
    id         text    COLLATE "C" PRIMARY KEY,
    host       text    NOT NULL,
    pid        bigint  NOT NULL,
    app        text    NOT NULL,
    started_at bigint  NOT NULL,
    dead       boolean NOT NULL DEFAULT false
);

-- The only row that a heartbeat writes. Never referenced by a foreign key: that would lock it.
CREATE TABLE dblock_heartbeats (
    session_id text   COLLATE "C" PRIMARY KEY,
    expires_at bigint NOT NULL
) WITH (fillfactor = 50);

-- The locks. The primary key is what makes an insert a lock; session_id is null where nobody holds it.
CREATE TABLE dblock_locks (
    name        text    COLLATE "C" PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 255),
    session_id  text    COLLATE "C",
    host        text    NOT NULL DEFAULT '',
    thread      text    NOT NULL DEFAULT '',
    holds       integer NOT NULL DEFAULT 0,
    attempt     text    COLLATE "C" NOT NULL DEFAULT '',
    token       bigint  NOT NULL,
    acquired_at bigint  NOT NULL, -- of the last grant; with nobody holding it, of the last release
    expires_at  bigint,           -- fixed leases only
    waiters     integer NOT NULL DEFAULT 0,
    next_ticket bigint  NOT NULL DEFAULT 1,
    metadata    text    NOT NULL DEFAULT ''
) WITH (fillfactor = 50);
CREATE INDEX dblock_locks_session ON dblock_locks (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX dblock_locks_expiry ON dblock_locks (expires_at) WHERE expires_at IS NOT NULL;

-- The queue. Tickets come from the locked row of dblock_locks, never from a sequence: in a sequence a later number
-- can commit first.
CREATE TABLE dblock_waiters (
    name        text   COLLATE "C" NOT NULL,
    ticket      bigint NOT NULL,
    session_id  text   COLLATE "C" NOT NULL,
    host        text   NOT NULL,
    thread      text   NOT NULL,
    attempt     text   COLLATE "C" NOT NULL UNIQUE,
    lease       bigint NOT NULL, -- microseconds from the grant; 0: as long as the session
    metadata    text   NOT NULL,
    enqueued_at bigint NOT NULL,
    PRIMARY KEY (name, ticket)
);
CREATE INDEX dblock_waiters_session ON dblock_waiters (session_id, name);

-- +goose Down
DROP TABLE dblock_waiters, dblock_locks, dblock_heartbeats, dblock_sessions, dblock_schema;
DROP FUNCTION dblock_now(), dblock_durable();
