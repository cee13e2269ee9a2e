-- The states of Terraform and OpenTofu, of package tfstate. Rows are never deleted: one that is forgotten lets a late
-- write of an old lock pass.
CREATE TABLE IF NOT EXISTS dblock_states (
    name   text   COLLATE "C" PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 255),
    token  bigint NOT NULL CHECK (token > 0),
    writes bigint NOT NULL DEFAULT 0,
    state  bytea
);
