package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/pgserver"
)

// Option configures New and NewSQL.
type Option func(*engine)

// Listen has clients listen on connections to this address, one for each, and not to their pool's:
// for a pool behind something that lends connections by the transaction (PgBouncer, Supavisor,
// Neon, RDS Proxy), through which nothing is heard, so that clients poll. It MUST
// lead to the same database past the pooler. It is a DSN, a configuration, or a pool, of which only
// the configuration and the hooks are used.
//
// A client listens from the first time that it waits. A DSN that cannot be read is ErrConfig from
// dblock.New. Where an address cannot be reached, or nothing is heard there, the client says so in
// its log and to Observer.Listener, polls, and tries again at growing intervals, up to 5 minutes.
// Default: as the pool connects.
func Listen[D string | *pgx.ConnConfig | *pgxpool.Pool](direct D) Option {
	d := directConn{}
	switch direct := any(direct).(type) {
	case string:
		d.config, d.err = pgxpool.ParseConfig(direct) // it knows the parameters of pools, too
	case *pgx.ConnConfig:
		if d.err = errNilAddress; direct != nil {
			d.config, d.err = new(pgxpool.Config), nil
			d.config.ConnConfig = direct.Copy()
		}
	case *pgxpool.Pool:
		if d.err = errNilAddress; direct != nil {
			d.config, d.err = direct.Config(), nil
		}
	}
	return func(e *engine) { e.direct = &d }
}

// AnyServer has a client use whatever server it finds. Without it the first lock is ErrConfig on
// servers that speak PostgreSQL's protocol, and whose locks are not PostgreSQL's: CockroachDB,
// YugabyteDB, Amazon Redshift. Nothing was tested there.
func AnyServer() Option { return func(e *engine) { e.anyServer = true } }

var errNilAddress = errors.New("it is nil")

// directConn is how listeners connect that do not connect as the pool does.
type directConn struct {
	config *pgxpool.Config
	err    error
}

func (d *directConn) validate() error {
	if d == nil || d.err == nil {
		return nil
	}
	return driver.Fail(driver.ErrConfig, fmt.Errorf("postgres.Listen: %w", d.err))
}

// connect opens a connection to listen on, without a handler of the application's for
// notifications.
func (d *directConn) connect(ctx context.Context, app string) (*line, error) {
	conn, err := pgserver.Connect(ctx, d.config.Copy(), app, unhandled)
	if err != nil {
		return nil, err
	}
	return newLine(pgxConn{conn}), nil
}

// unhandled is a configuration without the application's handler of notifications.
func unhandled(c *pgx.ConnConfig) { c.OnNotification = nil }
