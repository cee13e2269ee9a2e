-- People who look at the locks on MySQL or MariaDB: dblock ls, show, why, sessions, jobs, runs, events
-- and doctor, the page, and the views, which read the tables with the rights of whoever asks. They
-- change nothing. For the transactions that keep rows locked, why also needs the rights of the
-- application, PROCESS, and on MySQL SELECT on performance_schema.
GRANT SELECT ON orders.dblock_who TO orders_people@'%';
GRANT SELECT ON orders.dblock_queue TO orders_people@'%';
GRANT SELECT ON orders.dblock_columns TO orders_people@'%';
GRANT SELECT ON orders.dblock_schema TO orders_people@'%';
GRANT SELECT ON orders.dblock_clock TO orders_people@'%';
GRANT SELECT ON orders.dblock_locks TO orders_people@'%';
GRANT SELECT ON orders.dblock_shares TO orders_people@'%';
GRANT SELECT ON orders.dblock_waiters TO orders_people@'%';
GRANT SELECT ON orders.dblock_sessions TO orders_people@'%';
GRANT SELECT ON orders.dblock_heartbeats TO orders_people@'%';
GRANT SELECT ON orders.dblock_runs TO orders_people@'%';
GRANT SELECT ON orders.dblock_events TO orders_people@'%';
