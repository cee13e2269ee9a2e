-- +goose Up

-- Which database this is: a client refuses a transaction of another one that has dblock's tables, too. A copy of the
-- database has the same. Every statement can be run again, as in 00002. The id is made in a variable, which goes to
-- replicas as it is.
SET @dblock_ddl = (SELECT IF(COUNT(*) = 0,
       'ALTER TABLE dblock_schema ADD COLUMN database_id CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT ''''', 'DO 0')
  FROM information_schema.columns
 WHERE table_schema = DATABASE() AND table_name = 'dblock_schema' AND column_name = 'database_id');
PREPARE dblock_ddl FROM @dblock_ddl;
EXECUTE dblock_ddl;
/*T! ALTER TABLE dblock_schema ADD COLUMN database_id CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT ''; */ DO 0;
SET @dblock_id = REPLACE(UUID(), '-', '');
UPDATE dblock_schema SET database_id = @dblock_id WHERE database_id = '';

-- The same in each row of dblock_locks, where it takes no room: LockTx reads it with the row that it locks. To read
-- another row would give the transaction its snapshot.
SET @dblock_ddl = (SELECT IF(COUNT(*) = 0,
       CONCAT('ALTER TABLE dblock_locks ADD COLUMN database_id CHAR(32) CHARACTER SET ascii COLLATE ascii_bin GENERATED ALWAYS AS (''',
              (SELECT s.database_id FROM dblock_schema s), ''') VIRTUAL'), 'DO 0')
  FROM information_schema.columns
 WHERE table_schema = DATABASE() AND table_name = 'dblock_locks' AND column_name = 'database_id');
PREPARE dblock_ddl FROM @dblock_ddl;
EXECUTE dblock_ddl;
DEALLOCATE PREPARE dblock_ddl;
/*T! ALTER TABLE dblock_locks ADD COLUMN database_id CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT ''; */ DO 0;

REPLACE INTO dblock_columns (table_name, column_name, meaning) VALUES
('dblock_schema', 'database_id', 'random, one for each database; a copy has the same'),
('dblock_locks', 'database_id', 'that of dblock_schema');

UPDATE dblock_schema SET version = 8 WHERE version = 7;

-- +goose Down
UPDATE dblock_schema SET version = 7 WHERE version = 8;
DELETE FROM dblock_columns WHERE column_name = 'database_id';
SET @dblock_ddl = (SELECT IF(COUNT(*) > 0, 'ALTER TABLE dblock_locks DROP COLUMN database_id', 'DO 0')
  FROM information_schema.columns
 WHERE table_schema = DATABASE() AND table_name = 'dblock_locks' AND column_name = 'database_id');
PREPARE dblock_ddl FROM @dblock_ddl;
EXECUTE dblock_ddl;
SET @dblock_ddl = (SELECT IF(COUNT(*) > 0, 'ALTER TABLE dblock_schema DROP COLUMN database_id', 'DO 0')
  FROM information_schema.columns
 WHERE table_schema = DATABASE() AND table_name = 'dblock_schema' AND column_name = 'database_id');
PREPARE dblock_ddl FROM @dblock_ddl;
EXECUTE dblock_ddl;
DEALLOCATE PREPARE dblock_ddl;
