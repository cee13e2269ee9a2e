-- +goose Up

-- Which builds can use these tables. version: which tables they are. usable_from: from which build on (driver.SchemaVersion)
-- they are usable. A migration that an older build cannot live with sets usable_from to its own version; all others leave
-- it, and only add. Every statement can be run again, as in 00002.
SET @dblock_ddl = (SELECT IF(COUNT(*) = 0, 'ALTER TABLE dblock_schema ADD COLUMN usable_from INT NOT NULL DEFAULT 3', 'DO 0')
  FROM information_schema.columns
 WHERE table_schema = DATABASE() AND table_name = 'dblock_schema' AND column_name = 'usable_from');
PREPARE dblock_ddl FROM @dblock_ddl;
EXECUTE dblock_ddl;
DEALLOCATE PREPARE dblock_ddl;
/*T! ALTER TABLE dblock_schema ADD COLUMN usable_from INT NOT NULL DEFAULT 3; */ DO 0;

UPDATE dblock_schema SET version = 3 WHERE version = 2;

-- +goose Down
UPDATE dblock_schema SET version = 2 WHERE version = 3;
SET @dblock_ddl = (SELECT IF(COUNT(*) > 0, 'ALTER TABLE dblock_schema DROP COLUMN usable_from', 'DO 0')
  FROM information_schema.columns
 WHERE table_schema = DATABASE() AND table_name = 'dblock_schema' AND column_name = 'usable_from');
PREPARE dblock_ddl FROM @dblock_ddl;
EXECUTE dblock_ddl;
DEALLOCATE PREPARE dblock_ddl;
