-- People who look at the locks on PostgreSQL.
GRANT CONNECT ON DATABASE orders TO orders_people;
GRANT USAGE ON SCHEMA locks TO orders_people;
GRANT SELECT ON dblock_who, dblock_queue TO orders_people;
GRANT EXECUTE ON FUNCTION dblock_now() TO orders_people;
