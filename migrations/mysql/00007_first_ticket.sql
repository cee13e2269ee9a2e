-- +goose Up

-- Nothing changes but the version, which is one for all engines: PostgreSQL gets a column.
UPDATE dblock_schema SET version = 7 WHERE version = 6;

-- +goose Down
UPDATE dblock_schema SET version = 6 WHERE version = 7;
