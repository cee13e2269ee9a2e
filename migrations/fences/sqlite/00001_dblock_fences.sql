-- +goose Up

-- The highest fencing token that each resource was written with. Rows are never deleted: one that is forgotten lets a
-- lower token pass again.
CREATE TABLE dblock_fences (
    resource text   NOT NULL PRIMARY KEY CHECK (length(CAST(resource AS BLOB)) BETWEEN 1 AND 255),
    token    bigint NOT NULL CHECK (token > 0)
) WITHOUT ROWID;

-- +goose Down
DROP TABLE dblock_fences;
