-- People who look at the locks on PostgreSQL: dblock ls, show, why, sessions, jobs, runs, events and
-- doctor, the page, and the views. They change nothing. For the transactions that keep rows locked,
-- why also needs the rights of the application, and pg_read_all_stats.
GRANT CONNECT ON DATABASE orders TO orders_people;
GRANT USAGE ON SCHEMA locks TO orders_people;
GRANT SELECT ON dblock_who, dblock_queue TO orders_people;
GRANT SELECT ON dblock_schema, dblock_holders, dblock_sessions, dblock_heartbeats, dblock_names TO orders_people;
GRANT SELECT ON dblock_locks, dblock_shares, dblock_waiters, dblock_runs, dblock_events TO orders_people;
GRANT EXECUTE ON FUNCTION dblock_now() TO orders_people;
