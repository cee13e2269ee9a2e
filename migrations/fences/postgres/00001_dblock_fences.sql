-- +goose Up

-- The highest fencing token that each resource was written with. Rows are never deleted: one that is forgotten lets a
-- lower token pass again.
CREATE TABLE dblock_fences (
    resource text   COLLATE "C" PRIMARY KEY CHECK (octet_length(resource) BETWEEN 1 AND 255),
    token    bigint NOT NULL CHECK (token > 0)
) WITH (fillfactor = 50);

-- +goose Down
DROP TABLE dblock_fences;
