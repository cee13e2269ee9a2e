package pgserver

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Connect opens a connection as a pool with this configuration would, with its hooks, but outside
// its budget. It changes like, which is a copy. The server shows the connection under
// ConnectionName. change may change the configuration after BeforeConnect; nil: no change. Tracers
// and handlers of notices are left out: no heartbeat may wait for code of the application.
func Connect(ctx context.Context, like *pgxpool.Config, app string, change func(*pgx.ConnConfig)) (*pgx.Conn, error) {
	config := like.ConnConfig
	if like.BeforeConnect != nil {
		if err := like.BeforeConnect(ctx, config); err != nil {
			return nil, err
		}
	}
	if config.RuntimeParams == nil { // BeforeConnect may have removed it
		config.RuntimeParams = map[string]string{}
	}
	config.RuntimeParams["application_name"] = ConnectionName(app)
	config.RuntimeParams["client_encoding"] = "UTF8" // texts are read as they were written
	if change != nil {
		change(config)
	}
	config.Tracer, config.OnNotice = nil, nil
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if like.AfterConnect != nil {
		if err := like.AfterConnect(ctx, conn); err != nil {
			Shut(conn)
			return nil, err
		}
	}
	if err := prepare(ctx, like, conn); err != nil {
		Shut(conn)
		return nil, err
	}
	return conn, nil
}

// prepare runs the hook that the pool runs before it lends a connection.
func prepare(ctx context.Context, like *pgxpool.Config, conn *pgx.Conn) error {
	usable, err := true, error(nil)
	switch {
	case like.PrepareConn != nil:
		usable, err = like.PrepareConn(ctx, conn)
	//lint:ignore SA1019 applications have it
	case like.BeforeAcquire != nil:
		//lint:ignore SA1019 applications have it
		usable = like.BeforeAcquire(ctx, conn)
	}
	if err == nil && !usable {
		err = errors.New("the pool's PrepareConn refused a new connection")
	}
	return err
}

// nameSize is the length in bytes to which PostgreSQL cuts an application_name.
const nameSize = 63

// ConnectionName returns the application_name of the library's connections for a client of an
// application: dblock/<app>, as pg_stat_activity shows it, or dblock if the application is not
// known.
func ConnectionName(app string) string {
	if app == "" {
		return "dblock"
	}
	name := "dblock/" + app
	if len(name) > nameSize {
		name = strings.ToValidUTF8(name[:nameSize], "") // drops half a character at the cut
	}
	return name
}

// Close closes a connection. It waits for the network for at most CleanupTimeout.
func Close(conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(context.Background(), CleanupTimeout)
	defer cancel()
	return conn.Close(ctx)
}

// Shut closes a connection, and waits for pgx's clean-up in the background, again for at most
// CleanupTimeout.
func Shut(conn *pgx.Conn) {
	_ = Close(conn)
	select {
	case <-conn.PgConn().CleanupDone():
	case <-time.After(CleanupTimeout):
	}
}
