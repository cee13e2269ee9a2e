-- Answers to requests with an Idempotency-Key, of package httpidem. expires: in seconds since 1970, by the database's clock.
CREATE TABLE IF NOT EXISTS dblock_answers (
    id          text    COLLATE "C" PRIMARY KEY CHECK (octet_length(id) BETWEEN 1 AND 255),
    fingerprint bytea   NOT NULL,
    status      integer NOT NULL,
    header      bytea   NOT NULL,
    body        bytea   NOT NULL,
    expires     bigint  NOT NULL
);
CREATE INDEX IF NOT EXISTS dblock_answers_expires ON dblock_answers (expires);
