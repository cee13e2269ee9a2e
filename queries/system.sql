-- Columns that PostgreSQL gives each table by itself, and that sqlc does not know. This file is never run.
ALTER TABLE dblock_waiters ADD COLUMN ctid tid NOT NULL;
