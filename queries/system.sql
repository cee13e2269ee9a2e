-- Columns that PostgreSQL gives each table by itself, and that sqlc does not know. Nobody runs this.
ALTER TABLE dblock_waiters ADD COLUMN ctid tid NOT NULL;
