-- +goose Up

-- Which database this is: a client refuses a transaction of another one that has dblock's tables, too. A copy of the
-- database has the same.
ALTER TABLE dblock_schema ADD COLUMN database_id text NOT NULL DEFAULT '';
COMMENT ON COLUMN dblock_schema.database_id IS 'random, one for each database; a copy has the same';
UPDATE dblock_schema SET version = 8, database_id = replace(gen_random_uuid()::text, '-', '');

-- +goose Down
ALTER TABLE dblock_schema DROP COLUMN database_id;
UPDATE dblock_schema SET version = 7;
