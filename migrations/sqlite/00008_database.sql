-- +goose Up

-- Which database this is: a client refuses a transaction of another one that has dblock's tables, too. A copy of the
-- database has the same.
ALTER TABLE dblock_schema ADD COLUMN database_id text NOT NULL DEFAULT '';
UPDATE dblock_schema SET version = 8, database_id = lower(hex(randomblob(16)));
INSERT INTO dblock_columns (table_name, column_name, meaning) VALUES
('dblock_schema', 'database_id', 'random, one for each database; a copy has the same');

-- +goose Down
DELETE FROM dblock_columns WHERE table_name = 'dblock_schema' AND column_name = 'database_id';
ALTER TABLE dblock_schema DROP COLUMN database_id;
UPDATE dblock_schema SET version = 7;
