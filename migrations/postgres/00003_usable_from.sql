-- +goose Up

-- Which builds can use these tables. version: which tables they are. usable_from: from which build on (driver.SchemaVersion)
-- they are usable. A migration that an older build cannot live with sets usable_from to its own version; all others leave
-- it, and only add.
ALTER TABLE dblock_schema ADD COLUMN usable_from integer NOT NULL DEFAULT 3;
UPDATE dblock_schema SET version = 3;

-- +goose Down
ALTER TABLE dblock_schema DROP COLUMN usable_from;
UPDATE dblock_schema SET version = 2;
