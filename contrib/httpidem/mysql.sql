-- Answers to requests with an Idempotency-Key, of package httpidem. expires: in seconds since 1970, by the database's clock.
CREATE TABLE IF NOT EXISTS dblock_answers (
    id          VARBINARY(255) NOT NULL PRIMARY KEY,
    fingerprint VARBINARY(32)  NOT NULL,
    status      INT            NOT NULL,
    header      LONGBLOB       NOT NULL,
    body        LONGBLOB       NOT NULL,
    expires     BIGINT         NOT NULL,
    INDEX dblock_answers_expires (expires)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
