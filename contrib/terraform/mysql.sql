-- The states of Terraform and OpenTofu, of package tfstate. Rows are never deleted: one that is forgotten lets a late
-- write of an old lock pass.
CREATE TABLE IF NOT EXISTS dblock_states (
    name   VARBINARY(255) NOT NULL PRIMARY KEY,
    token  BIGINT         NOT NULL,
    writes BIGINT         NOT NULL DEFAULT 0,
    state  LONGBLOB
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
