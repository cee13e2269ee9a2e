package postgres

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// A queue of notifications that is full takes 8 GB. So the functions that send a notification and
// tell of the queue are shadowed by the test's own.
const shadows = `
	CREATE TABLE queue (usage float8 NOT NULL);
	INSERT INTO queue VALUES (0);
	CREATE SEQUENCE refused MINVALUE 0 START 0;
	CREATE SEQUENCE tried;
	CREATE FUNCTION pg_notification_queue_usage() RETURNS float8 LANGUAGE sql VOLATILE AS 'SELECT usage FROM queue';
	CREATE FUNCTION pg_notify(channel text, payload text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
	BEGIN
		IF (SELECT usage FROM queue) = 1 AND nextval('tried') > 0 OR nextval('refused') < 0 THEN
			RAISE 'too many notifications in the NOTIFY queue' USING ERRCODE = 'program_limit_exceeded';
		END IF;
		PERFORM pg_catalog.pg_notify(channel, payload);
	END $$`

// shadowed is a database in which the test says how full the queue is.
func shadowed(t *testing.T) (db dbtest.Database, exec func(sql string)) {
	t.Helper()
	db = dbtest.Postgres(t)
	db.DSN += "&search_path=public,pg_catalog"
	pool := db.Pool(t)
	exec = func(sql string) {
		t.Helper()
		require.NoError(t, require.ErrOf(pool.Exec(t.Context(), sql)))
	}
	exec(shadows)
	return db, exec
}

// handedOver has each way of handing over that is named hand over to a waiter.
func handedOver(t *testing.T, db dbtest.Database, log *slog.Logger, before func(), ways ...string) {
	t.Helper()
	pool := db.Pool(t)
	client := func(pool *pgxpool.Pool) *dblock.Client[pgx.Tx] {
		c, err := dblock.New(New(pool), dblock.WithTTL(time.Minute), dblock.WithLogger(log))
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close(context.Background()) }) // of a lock that Break took it tells
		return c
	}
	a, b := client(pool), client(db.Pool(t))
	watching, stop := context.WithCancel(t.Context())
	defer stop()
	releases := map[string]func(l *dblock.Lock) error{
		"Unlock":   func(l *dblock.Lock) error { return l.Unlock(t.Context()) },
		"a reader": func(l *dblock.Lock) error { return l.Unlock(t.Context()) },
		"Break": func(l *dblock.Lock) error {
			_, err := b.Break(t.Context(), l.Name(), "test")
			return err
		},
		"UnlockTx": func(l *dblock.Lock) error {
			return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return a.UnlockTx(t.Context(), tx, l) })
		},
	}
	for _, what := range ways {
		var as []dblock.LockOption
		if what == "a reader" {
			as = append(as, dblock.Shared())
		}
		l, err := a.Lock(t.Context(), what, as...)
		require.NoError(t, err)
		for _, err := range inspect.New(b).Watch(watching, what) { // so that there is somebody else to be told
			assert.NoError(t, err)
			break
		}
		granted := make(chan error)
		go func() {
			next, err := b.Lock(t.Context(), what)
			if err == nil {
				err = next.Unlock(t.Context())
			}
			granted <- err
		}()
		for info := (inspect.Info{}); len(info.Waiters) == 0; {
			if info, err = inspect.New(a).Lock(t.Context(), what); err != nil {
				t.Fatal(err)
			}
		}
		before()
		assert.NoError(t, releases[what](l), what)
		assert.NoError(t, <-granted, "behind", what)
	}
}

// Broken by a hint that is sent in spite of it: its COMMIT fails.
func TestAFullQueueOfNotificationsStopsNoHandOver(t *testing.T) {
	db, exec := shadowed(t)
	exec("UPDATE queue SET usage = 1")
	log := &logged{}
	handedOver(t, db, slog.New(log), func() {}, "Unlock", "a reader", "Break", "UnlockTx")
	log.mu.Lock()
	defer log.mu.Unlock()
	told := 0
	for _, r := range log.said {
		r.Attrs(func(a slog.Attr) bool {
			if strings.Contains(a.Value.String(), "queue of notifications is full") {
				told++
			}
			return true
		})
	}
	if told == 0 || told > 4 { // by each client that waits, and listens
		t.Errorf("%d lines of the log say why nothing is heard", told)
	}
	var tried bool
	require.NoError(t, db.Pool(t).QueryRow(t.Context(), "SELECT is_called FROM tried").Scan(&tried))
	assert.Equal(t, tried, false, "a hint was sent")
}

// Broken by a release that fails where the queue was filled behind its back.
func TestAQueueOfNotificationsThatFillsUpStopsNoHandOver(t *testing.T) {
	db, exec := shadowed(t)
	handedOver(t, db, slog.New(slog.DiscardHandler), func() {
		exec("ALTER SEQUENCE refused MINVALUE -1 RESTART WITH -1")
	}, "Unlock", "a reader", "Break") // after UnlockTx it is the application's COMMIT that fails
}
