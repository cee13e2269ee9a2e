-- Whoever runs migrate.Up on PostgreSQL. The tables belong to this role.
GRANT CONNECT ON DATABASE orders TO orders_migrate;
GRANT USAGE, CREATE ON SCHEMA locks TO orders_migrate;
