-- +goose Up

-- How often each name was bumped. A name without a row is at version 0, and so is one whose first Bump is under way.
-- Rows are never deleted: a name that begins again lets a writer pass that read the same number the first time. It can be
-- run again: DDL commits as it goes.
CREATE TABLE IF NOT EXISTS dblock_versions (
    name    VARBINARY(255) NOT NULL PRIMARY KEY,
    version BIGINT         NOT NULL,
    CONSTRAINT dblock_versions_name CHECK (OCTET_LENGTH(name) BETWEEN 1 AND 255),
    CONSTRAINT dblock_versions_version CHECK (version >= 0)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS dblock_versions;
