-- Whoever runs migrate.Up on MySQL or MariaDB.
GRANT CREATE, ALTER, INDEX, DROP, CREATE VIEW ON orders.* TO orders_migrate@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON orders.* TO orders_migrate@'%';
