package pgserver

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Connect opens a connection as the pool would, with its configuration and hooks, but outside its
// budget. change may change the configuration after BeforeConnect has; nil: it stays.
func Connect(ctx context.Context, pool *pgxpool.Pool, change func(*pgx.ConnConfig)) (*pgx.Conn, error) {
	like := pool.Config()
	config := like.ConnConfig
	if like.BeforeConnect != nil {
		if err := like.BeforeConnect(ctx, config); err != nil {
			return nil, err
		}
	}
	if change != nil {
		change(config)
	}
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
	return conn, nil
}

// Close closes a connection. It waits for the network no longer than CleanupTimeout.
func Close(conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(context.Background(), CleanupTimeout)
	defer cancel()
	return conn.Close(ctx)
}

// Shut closes a connection, and waits for what pgx closes in the background, again no longer than
// CleanupTimeout.
func Shut(conn *pgx.Conn) {
	_ = Close(conn)
	select {
	case <-conn.PgConn().CleanupDone():
	case <-time.After(CleanupTimeout):
	}
}
