-- +goose Up

-- For people with a console. Older builds do not know these views, and need not.

-- One row for each holder. A name that is free with a row of dblock_locks is not shown. Of a run, token is that of the
-- last member, as for Inspect and Break.
CREATE VIEW dblock_who AS
SELECT l.name,
       CASE WHEN r.name IS NOT NULL AND l.capacity < 2147483647 THEN 'permits'
            WHEN r.name IS NOT NULL THEN 'shared'
            WHEN l.first_token < l.last_token THEN 'run'
            ELSE 'exclusive' END AS kind,
       r.units, coalesce(r.host, l.host) AS host, coalesce(r.thread, l.thread) AS thread, s.pid, s.app,
       coalesce(r.session_id, l.session_id) AS session, coalesce(r.token, l.last_token) AS token,
       timestamptz 'epoch' + coalesce(r.acquired_at, l.acquired_at) * interval '1 microsecond' AS since,
       timestamptz 'epoch' + least(h.expires_at, f.expires_at) * interval '1 microsecond' AS until,
       coalesce(NOT s.dead AND h.expires_at > dblock_now() AND (f.expires_at IS NULL OR f.expires_at > dblock_now()), false) AS alive,
       coalesce(q.waiters, 0) AS waiters, (dblock_now() - q.first) * interval '1 microsecond' AS longest_wait
  FROM dblock_locks l
  LEFT JOIN dblock_shares r ON r.name = l.name
 CROSS JOIN LATERAL (SELECT CASE WHEN r.name IS NULL THEN l.expires_at ELSE r.expires_at END AS expires_at) f
  LEFT JOIN dblock_sessions s ON s.id = coalesce(r.session_id, l.session_id)
  LEFT JOIN dblock_heartbeats h ON h.session_id = coalesce(r.session_id, l.session_id)
  LEFT JOIN (SELECT w.name, count(*) AS waiters, min(w.enqueued_at) AS first FROM dblock_waiters w WHERE w.token = 0 GROUP BY w.name) q
         ON q.name = l.name
 WHERE r.name IS NOT NULL OR l.session_id IS NOT NULL;

-- One row for each place in a queue. The members of a run are in front of the waiters, and are none.
CREATE VIEW dblock_queue AS
SELECT w.name, count(*) FILTER (WHERE w.token = 0) OVER (PARTITION BY w.name ORDER BY w.ticket) AS place, w.ticket,
       CASE WHEN w.units = 0 THEN 'exclusive' WHEN l.capacity < 2147483647 THEN 'permits' ELSE 'shared' END AS kind,
       nullif(w.units, 0) AS units, w.host, w.thread, s.pid, s.app, w.session_id AS session,
       timestamptz 'epoch' + w.enqueued_at * interval '1 microsecond' AS since,
       coalesce(NOT s.dead AND h.expires_at > dblock_now(), false) AS alive, w.token > 0 AS member
  FROM dblock_waiters w
  JOIN dblock_locks l ON l.name = w.name
  LEFT JOIN dblock_sessions s ON s.id = w.session_id
  LEFT JOIN dblock_heartbeats h ON h.session_id = w.session_id;

-- A comment makes no statement of a client wait.
-- +goose StatementBegin
COMMENT ON TABLE dblock_schema IS 'Which builds can use these tables. One row.';
COMMENT ON COLUMN dblock_schema.version IS 'which tables these are: the number of the last migration';
COMMENT ON COLUMN dblock_schema.usable_from IS 'the oldest build that can work with these tables, by the version that it brings';
COMMENT ON TABLE dblock_sessions IS 'One row for each client: of the living, and of the dead until the reaper forgets them.';
COMMENT ON COLUMN dblock_sessions.id IS 'random, one for each client';
COMMENT ON COLUMN dblock_sessions.host IS 'of the client (WithHost)';
COMMENT ON COLUMN dblock_sessions.pid IS 'process id of the client on its host';
COMMENT ON COLUMN dblock_sessions.app IS 'of the client (WithApp)';
COMMENT ON COLUMN dblock_sessions.started_at IS 'when the client opened the session, in microseconds since 1970 on the clock of this server';
COMMENT ON COLUMN dblock_sessions.dead IS 'the session has ended for good: its locks are free to be taken over';
COMMENT ON TABLE dblock_heartbeats IS 'When each living session ends. The only row that a heartbeat writes.';
COMMENT ON COLUMN dblock_heartbeats.session_id IS 'the session';
COMMENT ON COLUMN dblock_heartbeats.expires_at IS 'when the session ends without a further heartbeat, in microseconds since 1970';
COMMENT ON TABLE dblock_locks IS 'One row for each name, held or not. Whoever has the whole name stands here, whoever has a share in dblock_shares.';
COMMENT ON COLUMN dblock_locks.name IS 'the name of the lock, compared byte for byte';
COMMENT ON COLUMN dblock_locks.session_id IS 'session of the holder of the whole name, null where it has none';
COMMENT ON COLUMN dblock_locks.host IS 'owner of the lock: its host';
COMMENT ON COLUMN dblock_locks.thread IS 'owner of the lock: its thread';
COMMENT ON COLUMN dblock_locks.holds IS 'how often the owner has entered the lock';
COMMENT ON COLUMN dblock_locks.attempt IS 'random, of the request that got the lock';
COMMENT ON COLUMN dblock_locks.token IS 'the highest fencing token that was ever reserved for the name: it never falls';
COMMENT ON COLUMN dblock_locks.acquired_at IS 'of the last grant, or of the last release where nobody holds the name, in microseconds since 1970';
COMMENT ON COLUMN dblock_locks.expires_at IS 'end of a fixed lease (Lease) in microseconds since 1970, null where the lock ends with its session';
COMMENT ON COLUMN dblock_locks.waiters IS 'number of places in the queue, members of a run included';
COMMENT ON COLUMN dblock_locks.next_ticket IS 'ticket of the next place in the queue';
COMMENT ON COLUMN dblock_locks.metadata IS 'of the holder (Metadata), a JSON object or empty';
COMMENT ON COLUMN dblock_locks.shared_units IS 'units that the holders of shares have';
COMMENT ON COLUMN dblock_locks.capacity IS 'the smallest number of units that a holder states, while there are shares: 2147483647 of readers, else of a semaphore';
COMMENT ON COLUMN dblock_locks.mixed IS 'the holders of shares state several numbers of units';
COMMENT ON COLUMN dblock_locks.rests_until IS 'before this time nobody gets the name (MinHold), in microseconds since 1970';
COMMENT ON COLUMN dblock_locks.asked IS 'why another client asked the holder to release the lock (Ask)';
COMMENT ON COLUMN dblock_locks.first_token IS 'token of the first member of the run that has the lock, or of the only holder';
COMMENT ON COLUMN dblock_locks.last_token IS 'token of the last member of the run that has the lock, or of the only holder';
COMMENT ON TABLE dblock_shares IS 'One row for each reader, and for each holder of permits.';
COMMENT ON COLUMN dblock_shares.name IS 'the name of the lock';
COMMENT ON COLUMN dblock_shares.token IS 'fencing token of the share';
COMMENT ON COLUMN dblock_shares.session_id IS 'session of the holder';
COMMENT ON COLUMN dblock_shares.host IS 'owner of the share: its host';
COMMENT ON COLUMN dblock_shares.thread IS 'owner of the share: its thread';
COMMENT ON COLUMN dblock_shares.holds IS 'how often the owner has entered the share';
COMMENT ON COLUMN dblock_shares.attempt IS 'random, of the request that got the share';
COMMENT ON COLUMN dblock_shares.units IS 'how many units it has: 1 of a reader, else permits';
COMMENT ON COLUMN dblock_shares.capacity IS 'of how many units: what its holder states';
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
COMMENT ON COLUMN dblock_waiters.attempt IS 'random, of the request that waits';
COMMENT ON COLUMN dblock_waiters.lease IS 'fixed lease that it wants, in microseconds from the grant, 0 where the lock is to end with its session';
COMMENT ON COLUMN dblock_waiters.metadata IS 'of the waiter (Metadata), a JSON object or empty';
COMMENT ON COLUMN dblock_waiters.enqueued_at IS 'since when it waits, in microseconds since 1970';
COMMENT ON COLUMN dblock_waiters.units IS 'units that it wants, 0: the whole name';
COMMENT ON COLUMN dblock_waiters.capacity IS 'of how many units: what the waiter states';
COMMENT ON COLUMN dblock_waiters.min_hold IS 'how long the name is to rest from the grant on (MinHold), in microseconds';
COMMENT ON COLUMN dblock_waiters.passable IS 'the grant may be part of a run';
COMMENT ON COLUMN dblock_waiters.token IS 'of a member of a run, which keeps its place until the run ends, 0: it waits';
COMMENT ON TABLE dblock_guards IS 'One row for each hold that was ever guarded. Guard share-locks it until the transaction ends.';
COMMENT ON COLUMN dblock_guards.attempt IS 'of the hold';
COMMENT ON COLUMN dblock_guards.name IS 'the name of the lock';
COMMENT ON COLUMN dblock_guards.session_id IS 'session of the holder';
COMMENT ON COLUMN dblock_guards.takeovers IS 'how often somebody has tried to take the lock from the holder';
COMMENT ON TABLE dblock_wanted IS 'Takeovers that a guarded transaction has refused, and that come back.';
COMMENT ON COLUMN dblock_wanted.attempt IS 'of the hold that is to be taken over';
COMMENT ON COLUMN dblock_wanted.wanted_until IS 'until this time no new guard of the hold begins, in microseconds since 1970';
COMMENT ON TABLE dblock_events IS 'The history, for as long as the reaper keeps it.';
COMMENT ON COLUMN dblock_events.id IS 'rises, in no order of commits across names';
COMMENT ON COLUMN dblock_events.at IS 'when it was written, in microseconds since 1970';
COMMENT ON COLUMN dblock_events.name IS 'the name of the lock';
COMMENT ON COLUMN dblock_events.kind IS 'granted, released, lost, expired, asked, broken, or what the application recorded';
COMMENT ON COLUMN dblock_events.token IS 'fencing token of the lock, 0 where there is none';
COMMENT ON COLUMN dblock_events.session_id IS 'session of the holder, or of whoever asked or broke';
COMMENT ON COLUMN dblock_events.host IS 'host of the holder, or of whoever asked or broke';
COMMENT ON COLUMN dblock_events.thread IS 'thread of the holder, or of whoever asked or broke';
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
COMMENT ON COLUMN dblock_holders.token IS 'fencing token by which the library knows the holder';
COMMENT ON COLUMN dblock_holders.session_id IS 'session of the holder';
COMMENT ON COLUMN dblock_holders.host IS 'owner of the lock: its host';
COMMENT ON COLUMN dblock_holders.thread IS 'owner of the lock: its thread';
COMMENT ON COLUMN dblock_holders.holds IS 'how often the owner has entered';
COMMENT ON COLUMN dblock_holders.attempt IS 'random, of the request that got the lock';
COMMENT ON COLUMN dblock_holders.units IS 'units of a share, 0: the whole name';
COMMENT ON COLUMN dblock_holders.acquired_at IS 'when it was granted, in microseconds since 1970';
COMMENT ON COLUMN dblock_holders.expires_at IS 'end of a fixed lease (Lease) in microseconds since 1970';
COMMENT ON COLUMN dblock_holders.metadata IS 'of the holder (Metadata), a JSON object or empty';
COMMENT ON COLUMN dblock_holders.asked IS 'why another client asked the holder to release the lock (Ask)';
COMMENT ON VIEW dblock_who IS 'Who has which name, for people: one row for each holder.';
COMMENT ON COLUMN dblock_who.name IS 'the name of the lock: ask for one with WHERE name =';
COMMENT ON COLUMN dblock_who.kind IS 'exclusive, shared, permits, or run: requests of one client that pass the name on among themselves';
COMMENT ON COLUMN dblock_who.units IS 'units of a share or permits, null of the whole name';
COMMENT ON COLUMN dblock_who.host IS 'owner of the lock: its host';
COMMENT ON COLUMN dblock_who.thread IS 'owner of the lock: its thread';
COMMENT ON COLUMN dblock_who.pid IS 'process id of the client on its host';
COMMENT ON COLUMN dblock_who.app IS 'of the client (WithApp)';
COMMENT ON COLUMN dblock_who.session IS 'session of the client';
COMMENT ON COLUMN dblock_who.token IS 'fencing token: of a run that of its last member';
COMMENT ON COLUMN dblock_who.since IS 'when it was granted';
COMMENT ON COLUMN dblock_who.until IS 'when it ends without a further heartbeat, or by its fixed lease';
COMMENT ON COLUMN dblock_who.alive IS 'false: its time is over, and the next request or the reaper takes it over';
COMMENT ON COLUMN dblock_who.waiters IS 'how many wait for the name';
COMMENT ON COLUMN dblock_who.longest_wait IS 'how long the first of them has waited';
COMMENT ON VIEW dblock_queue IS 'Who waits for which name, for people: one row for each place in a queue.';
COMMENT ON COLUMN dblock_queue.name IS 'the name of the lock: ask for one with WHERE name =';
COMMENT ON COLUMN dblock_queue.place IS '1 is served first, 0: a member of a run';
COMMENT ON COLUMN dblock_queue.ticket IS 'what the order of the queue goes by';
COMMENT ON COLUMN dblock_queue.kind IS 'what it waits for: exclusive, shared or permits';
COMMENT ON COLUMN dblock_queue.units IS 'units or permits that it wants, null: the whole name';
COMMENT ON COLUMN dblock_queue.host IS 'owner that waits: its host';
COMMENT ON COLUMN dblock_queue.thread IS 'owner that waits: its thread';
COMMENT ON COLUMN dblock_queue.pid IS 'process id of the client on its host';
COMMENT ON COLUMN dblock_queue.app IS 'of the client (WithApp)';
COMMENT ON COLUMN dblock_queue.session IS 'session of the client';
COMMENT ON COLUMN dblock_queue.since IS 'since when it waits';
COMMENT ON COLUMN dblock_queue.alive IS 'false: its client is dead, and it is passed over';
COMMENT ON COLUMN dblock_queue.member IS 'true: it has the name in its turn, as a member of the run that dblock_who shows';
COMMENT ON FUNCTION dblock_now() IS 'The clock of this server, in microseconds since 1970.';
COMMENT ON FUNCTION dblock_durable() IS 'Makes the commit of this transaction wait for the disk.';
-- +goose StatementEnd

UPDATE dblock_schema SET version = 6;

-- +goose Down
DROP VIEW dblock_queue, dblock_who;
-- +goose StatementBegin
DO $$
DECLARE d record;
BEGIN
    FOR d IN SELECT c.oid::regclass AS relation, c.relkind = 'v' AS is_view, a.attname
               FROM pg_description o
               JOIN pg_class c ON o.classoid = 'pg_class'::regclass AND c.oid = o.objoid
               LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = o.objsubid AND o.objsubid > 0
              WHERE c.oid = ANY (ARRAY['dblock_schema', 'dblock_sessions', 'dblock_heartbeats', 'dblock_locks', 'dblock_shares',
                    'dblock_waiters', 'dblock_guards', 'dblock_wanted', 'dblock_events', 'dblock_runs', 'dblock_watchers',
                    'dblock_incarnation', 'dblock_holders']::regclass[])
    LOOP
        IF d.attname IS NOT NULL THEN
            EXECUTE format('COMMENT ON COLUMN %s.%I IS NULL', d.relation, d.attname);
        ELSIF d.is_view THEN
            EXECUTE format('COMMENT ON VIEW %s IS NULL', d.relation);
        ELSE
            EXECUTE format('COMMENT ON TABLE %s IS NULL', d.relation);
        END IF;
    END LOOP;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION dblock_now() IS NULL;
COMMENT ON FUNCTION dblock_durable() IS NULL;
UPDATE dblock_schema SET version = 5;
