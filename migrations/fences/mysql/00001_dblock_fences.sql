-- +goose Up

-- The highest fencing token that each resource was written with. Rows are never deleted: one that is forgotten lets a
-- lower token pass again. It can be run again: DDL commits as it goes.
CREATE TABLE IF NOT EXISTS dblock_fences (
    resource VARBINARY(255) NOT NULL PRIMARY KEY,
    token    BIGINT         NOT NULL,
    CONSTRAINT dblock_fences_resource CHECK (OCTET_LENGTH(resource) BETWEEN 1 AND 255),
    CONSTRAINT dblock_fences_token CHECK (token > 0)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS dblock_fences;
