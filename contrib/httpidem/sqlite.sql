-- Answers to requests with an Idempotency-Key, of package httpidem. expires: in seconds since 1970, by the database's clock.
CREATE TABLE IF NOT EXISTS dblock_answers (
    id          text    NOT NULL PRIMARY KEY,
    fingerprint blob    NOT NULL,
    status      integer NOT NULL,
    header      blob    NOT NULL,
    body        blob    NOT NULL,
    expires     bigint  NOT NULL
);
CREATE INDEX IF NOT EXISTS dblock_answers_expires ON dblock_answers (expires);
