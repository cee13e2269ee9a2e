package advisory

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/pgserver"
)

var (
	errStandby = errors.New("advisory locks of a standby do not exclude clients of the primary; a failover may be in " +
		"progress; connect to the primary (target_session_attrs=read-write)")
	errPooler = errors.New("a pooler in between lends server connections by the transaction (seen by " +
		"pg_backend_pid()), and an advisory lock would stay behind on a connection that others use: connect to " +
		"PostgreSQL directly, have the pooler pool sessions (PgBouncer: pool_mode = session), or keep locks in " +
		"tables, postgres.New, which works through it")
)

const (
	whichBackend = "SELECT pg_backend_pid(); SELECT pg_is_in_recovery()"

	// probes is the number of attempts. The first one detects an idle pooler; on a busy one each
	// attempt is a new chance.
	probes = 3
)

// refuse returns an error if a connection cannot keep locks.
//
// A pooler that lends by the transaction may lend the same server connection each time, above all
// when it is idle. So a second connection opens a transaction directly after the first one was
// served. If it gets the backend of the first connection, the pooler is detected. If it gets
// another backend, and the pooler has moved the first connection meanwhile, a query on the first
// connection shows it. Asking twice in a row detects a pooler that lends its connections in turn.
func (s server) refuse(ctx context.Context, conn *pgx.Conn) error {
	mine, err := backend(ctx, conn)
	if err != nil {
		return err
	}
	other, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer pgserver.Shut(other)
	for range probes {
		for range 2 {
			again, err := backend(ctx, conn)
			if err != nil {
				return err
			}
			if again != mine {
				return driver.Fail(driver.ErrConfig, errPooler)
			}
		}
		if _, err := simple(ctx, other, "BEGIN"); err != nil {
			return err
		}
		theirs, err := backend(ctx, other)
		if err != nil {
			return err
		}
		if theirs == mine {
			return driver.Fail(driver.ErrConfig, errPooler)
		}
		again, err := backend(ctx, conn) // while theirs is lent
		if err != nil {
			return err
		}
		if again != mine {
			return driver.Fail(driver.ErrConfig, errPooler)
		}
		if _, err := simple(ctx, other, "COMMIT"); err != nil {
			return err
		}
	}
	return nil
}

// backend returns the process that serves a connection now.
func backend(ctx context.Context, conn *pgx.Conn) (pid string, err error) {
	answers, err := simple(ctx, conn, whichBackend)
	switch {
	case err != nil:
		return "", err
	case answers[1] != "f":
		return "", driver.Fail(driver.ErrReadOnly, errStandby)
	}
	return answers[0], nil
}
