-- +goose Up

-- The version of the other engines, whose guards have rows. SQLite needs none: a guarded
-- transaction has locked the database.
UPDATE dblock_schema SET version = 4, usable_from = 4;

-- +goose Down
UPDATE dblock_schema SET version = 3, usable_from = 3;
