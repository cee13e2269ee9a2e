-- name: OpenSession :one
WITH s AS (
    INSERT INTO dblock_sessions (id, host, pid, app, started_at)
    VALUES (@id, @host, @pid, @app, dblock_now()) RETURNING id
), opened AS (
    INSERT INTO dblock_heartbeats (session_id, expires_at)
    SELECT s.id, dblock_now() + sqlc.arg(ttl)::bigint FROM s RETURNING 1
) SELECT count(*) FROM opened;

-- A session whose row an operator or a restore removed gets a row again: then its heartbeat tells whether it lives. The
-- unique key decides, not a snapshot.
-- name: RestoreSession :execrows
INSERT INTO dblock_sessions (id, host, pid, app, started_at)
VALUES (@id, '', 0, '', dblock_now()) ON CONFLICT (id) DO NOTHING;

-- Another client may be ending the session. No connection waits behind it: the caller retries later. A dead session never
-- revives.
-- name: LockLiving :one
SELECT dead FROM dblock_sessions WHERE id = @id AND NOT dead FOR UPDATE SKIP LOCKED;

-- After LockLiving and LockHeartbeat: ends the session if its TTL has passed.
-- name: ExpireSession :execrows
UPDATE dblock_sessions SET dead = true
 WHERE id = @id AND NOT dead
   AND NOT EXISTS (SELECT 1 FROM dblock_heartbeats h WHERE h.session_id = @id AND h.expires_at > dblock_now());

-- Ends the session, whatever its TTL, unless another client is ending it.
-- name: EndSession :execrows
UPDATE dblock_sessions SET dead = true WHERE id = (SELECT s.id FROM dblock_sessions s WHERE s.id = @id FOR UPDATE SKIP LOCKED);

-- After LockLiving: ends the session of a process that has ended, whatever its TTL.
-- name: BurySession :exec
UPDATE dblock_sessions SET dead = true, buried_by = @by, buried_because = @because WHERE id = @id AND NOT dead;

-- name: SessionDead :one
SELECT dead FROM dblock_sessions WHERE id = @id;

-- A late statement may still put a lock under a deleted session: Orphans lists it.
-- name: ForgetSession :execrows
WITH gone AS (
    DELETE FROM dblock_sessions s WHERE s.id = @id AND s.dead RETURNING s.id
)
DELETE FROM dblock_watchers v WHERE v.session_id = (SELECT gone.id FROM gone);

-- name: ForgetSessions :many
WITH gone AS (
    DELETE FROM dblock_sessions WHERE dblock_sessions.id IN (
        SELECT s.id FROM dblock_sessions s
         WHERE s.dead AND s.started_at < dblock_now() - sqlc.arg(idle)::bigint
           AND NOT EXISTS (SELECT 1 FROM dblock_holders h WHERE h.session_id = s.id)
           AND NOT EXISTS (SELECT 1 FROM dblock_waiters w WHERE w.session_id = s.id)
         LIMIT @most FOR UPDATE SKIP LOCKED)
    RETURNING dblock_sessions.id
), unwatched AS (
    DELETE FROM dblock_watchers v WHERE v.session_id IN (SELECT gone.id FROM gone)
)
SELECT gone.id FROM gone;

-- name: Expired :many
SELECT h.session_id FROM dblock_heartbeats h
 WHERE h.expires_at <= dblock_now() ORDER BY h.expires_at LIMIT @most;

-- Claims of all sessions that are dead, or have no row. A session has its row before its first claim, and a statement
-- sees both in one snapshot.
-- name: Orphans :many
SELECT l.session_id::text AS session, l.name, l.attempt, l.token, l.asked
  FROM dblock_holders l LEFT JOIN dblock_sessions s ON s.id = l.session_id WHERE coalesce(s.dead, true)
UNION ALL
SELECT w.session_id, w.name, w.attempt, 0, ''
  FROM dblock_waiters w LEFT JOIN dblock_sessions s ON s.id = w.session_id WHERE coalesce(s.dead, true)
LIMIT @most;

-- Claims of a session: of those that the client knows, and of a part of the tables or of all.
-- name: Claims :many
SELECT c.session::text AS session, c.name::text AS name, c.attempt::text AS attempt, c.token::bigint AS token, c.asked::text AS asked
  FROM dblock_claims(sqlc.arg(session)::text, sqlc.arg(known)::text::jsonb, sqlc.arg(step)::bigint) c LIMIT @most;

-- The builds that can use these tables.
-- name: Schema :one
SELECT version, usable_from FROM dblock_schema;

-- The schema in which this session finds a table; no row: in none.
-- name: Where :one
SELECT n.nspname::text AS place FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE c.oid = pg_catalog.to_regclass(@relation::text);

-- Functions and views of a schema that use tables, views or functions of dblock in another one: they were copied.
-- name: Strays :many
SELECT DISTINCT o.called::text AS stray, n.nspname::text AS place
  FROM (SELECT 'pg_catalog.pg_proc'::pg_catalog.regclass AS class, p.oid, 'function ' || p.proname AS called
          FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace h ON h.oid = p.pronamespace
         WHERE h.nspname = sqlc.arg(home)::text AND p.proname >= 'dblock_' AND p.proname < 'dblocka'
        UNION ALL
        SELECT 'pg_catalog.pg_rewrite'::pg_catalog.regclass, r.oid, 'view ' || v.relname
          FROM pg_catalog.pg_class v JOIN pg_catalog.pg_namespace h ON h.oid = v.relnamespace
          JOIN pg_catalog.pg_rewrite r ON r.ev_class = v.oid
         WHERE h.nspname = sqlc.arg(home)::text AND v.relname >= 'dblock_' AND v.relname < 'dblocka') o
  JOIN pg_catalog.pg_depend d ON d.classid = o.class AND d.objid = o.oid
  LEFT JOIN pg_catalog.pg_class t ON d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND t.oid = d.refobjid
  LEFT JOIN pg_catalog.pg_proc f ON d.refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass AND f.oid = d.refobjid
  JOIN pg_catalog.pg_namespace n ON n.oid = coalesce(t.relnamespace, f.pronamespace)
 WHERE pg_catalog.left(coalesce(t.relname, f.proname)::text, 7) = 'dblock_' AND n.nspname <> sqlc.arg(home)::text
 ORDER BY stray;

-- Where this session looks for a table, and whether row level security hides the rows of one from its role.
-- name: Place :one
SELECT current_database()::text AS db, array_to_string(current_schemas(false), '", "')::text AS schemas,
       current_user::text AS role, current_setting('search_path')::text AS path,
       coalesce(row_security_active(to_regclass(@relation::text)::oid), false)::boolean AS hides;

-- A trigger or a rule on a table of dblock's that is in force, and not dblock's own. @relation is one of the tables.
-- name: Triggers :many
SELECT 'trigger'::text AS kind, t.tgname::text AS name, c.relname::text AS relation
  FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
 WHERE NOT t.tgisinternal AND t.tgenabled IN ('O', 'A') AND left(t.tgname::text, 7) <> 'dblock_' AND left(c.relname::text, 7) = 'dblock_'
   AND c.relnamespace = (SELECT o.relnamespace FROM pg_catalog.pg_class o WHERE o.oid = to_regclass(@relation::text)::oid)
UNION ALL
SELECT 'rule', r.rulename::text, c.relname::text
  FROM pg_catalog.pg_rewrite r JOIN pg_catalog.pg_class c ON c.oid = r.ev_class
 WHERE c.relkind = 'r' AND r.ev_enabled IN ('O', 'A') AND left(r.rulename::text, 7) <> 'dblock_' AND left(c.relname::text, 7) = 'dblock_'
   AND c.relnamespace = (SELECT o.relnamespace FROM pg_catalog.pg_class o WHERE o.oid = to_regclass(@relation::text)::oid)
LIMIT 1;
