-- +goose Up

-- How often each name was bumped. A name without a row is at version 0. Rows are never deleted: a name that begins
-- again lets a writer pass that read the same number the first time.
CREATE TABLE dblock_versions (
    name    text   NOT NULL PRIMARY KEY CHECK (length(CAST(name AS BLOB)) BETWEEN 1 AND 255),
    version bigint NOT NULL CHECK (version > 0)
) WITHOUT ROWID;

-- +goose Down
DROP TABLE dblock_versions;
