-- The application on PostgreSQL, all features included. Given by the owner of the tables, with the
-- schema in the search_path; CONNECT by the owner of the database. Advisory locks need CONNECT only.
GRANT CONNECT ON DATABASE orders TO orders_app;
GRANT USAGE ON SCHEMA locks TO orders_app;
GRANT SELECT ON dblock_schema, dblock_holders TO orders_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON dblock_sessions TO orders_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON dblock_heartbeats TO orders_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON dblock_names TO orders_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON dblock_locks TO orders_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON dblock_shares TO orders_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON dblock_waiters TO orders_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON dblock_guards TO orders_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON dblock_wanted TO orders_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON dblock_runs TO orders_app;
-- UPDATE, since the reaper locks the events that it deletes.
GRANT SELECT, INSERT, UPDATE, DELETE ON dblock_events TO orders_app;
GRANT SELECT, INSERT, DELETE ON dblock_watchers TO orders_app;
-- Package quorum alone uses it.
GRANT SELECT, INSERT, UPDATE ON dblock_incarnation TO orders_app;
-- Everybody has these, unless they were taken from PUBLIC.
GRANT EXECUTE ON FUNCTION dblock_now(), dblock_durable(), dblock_epoch(text), dblock_make(text),
    dblock_insert(text), dblock_lock(text), dblock_wait(text), dblock_within(regprocedure, text), dblock_claims(text, jsonb, bigint) TO orders_app;
