-- People who look at the locks on MySQL or MariaDB: the views read the tables with the rights of
-- whoever asks.
GRANT SELECT ON orders.dblock_who TO orders_people@'%';
GRANT SELECT ON orders.dblock_queue TO orders_people@'%';
GRANT SELECT ON orders.dblock_columns TO orders_people@'%';
GRANT SELECT ON orders.dblock_clock TO orders_people@'%';
GRANT SELECT ON orders.dblock_locks TO orders_people@'%';
GRANT SELECT ON orders.dblock_shares TO orders_people@'%';
GRANT SELECT ON orders.dblock_waiters TO orders_people@'%';
GRANT SELECT ON orders.dblock_sessions TO orders_people@'%';
GRANT SELECT ON orders.dblock_heartbeats TO orders_people@'%';
