-- The application on MySQL or MariaDB, all features included. It needs neither PROCESS nor SUPER: a
-- user may KILL the statements of its own connections. Applications that share locks under several
-- users need CONNECTION_ADMIN (MariaDB: CONNECTION ADMIN) to wake each other; without it a waiter
-- notices its grant within seconds. mysql.Named needs no privilege but to connect.
GRANT SELECT ON orders.dblock_schema TO orders_app@'%';
GRANT SELECT ON orders.dblock_clock TO orders_app@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON orders.dblock_sessions TO orders_app@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON orders.dblock_heartbeats TO orders_app@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON orders.dblock_locks TO orders_app@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON orders.dblock_shares TO orders_app@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON orders.dblock_waiters TO orders_app@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON orders.dblock_guards TO orders_app@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON orders.dblock_wanted TO orders_app@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON orders.dblock_runs TO orders_app@'%';
GRANT SELECT, INSERT, DELETE ON orders.dblock_events TO orders_app@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON orders.dblock_watchers TO orders_app@'%';
-- Package quorum alone uses it.
GRANT SELECT, INSERT, UPDATE ON orders.dblock_incarnation TO orders_app@'%';
