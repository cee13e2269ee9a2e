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
type Option struct{ set func(e *engine) }

// Listen sets the address to which clients connect in order to listen, one connection for each
// client. Use it for a pool behind a pooler that lends connections by the transaction (PgBouncer,
// Supavisor, Neon, RDS Proxy): no notification passes such a pooler, and clients poll. The address
// MUST lead to the same database past the pooler. It is a DSN, a configuration, or a pool, of which
// only the configuration and the hooks are used.
//
// A client listens from the first time that it waits. A DSN that cannot be parsed is ErrConfig from
// dblock.New. If the address cannot be reached, or no notification arrives there, the client
// reports that to its log and to Observer.Listener, polls, and tries again at growing intervals, up
// to 5 minutes. Default: the address of the pool.
func Listen[D string | *pgx.ConnConfig | *pgxpool.Pool](direct D) Option {
	d := directConn{}
	switch direct := any(direct).(type) {
	case string:
		d.config, d.err = pgxpool.ParseConfig(direct) // also knows the parameters of pools
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
	return Option{func(e *engine) { e.direct = &d }}
}

// AnyServer accepts every server. Without AnyServer, the first lock is ErrConfig on servers that
// speak PostgreSQL's protocol but do not have PostgreSQL's locks: CockroachDB, YugabyteDB, Amazon
// Redshift. dblock is not tested on these. Default: not accepted.
func AnyServer() Option { return Option{func(e *engine) { e.anyServer = true }} }

var errNilAddress = errors.New("it is nil")

// directConn is the configuration of listeners that do not connect as the pool does.
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

// connect opens a connection to listen on, without the application's handler of notifications.
func (d *directConn) connect(ctx context.Context, app string) (*sharedConn, error) {
	conn, err := pgserver.Connect(ctx, d.config.Copy(), app, unhandled)
	if err != nil {
		return nil, err
	}
	return newSharedConn(pgxConn{conn}), nil
}

// unhandled removes the application's handler of notifications from a configuration.
func unhandled(c *pgx.ConnConfig) { c.OnNotification = nil }
