package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/dblock-go/dblock/internal/dbtest"
	"github.com/dblock-go/dblock/internal/driver"
)

// Broken by a KILL of a connection's id, or of that on the same server: after a restart ids begin
// anew.
func TestAnInterruptionThatComesAfterARestartHitsNoStranger(t *testing.T) {
	forSoak(t)
	for _, kind := range []string{dbtest.KindMySQL, dbtest.KindMariaDB} {
		t.Run(kind, func(t *testing.T) {
			own := dbtest.Own(t, kind)
			db := own.Empty(t)
			s := server{db, db.SQL(t)}
			s.migrate(t)
			connect := func() (*sql.Conn, int64) {
				conn, err := s.pool.Conn(t.Context())
				must(t, err)
				t.Cleanup(func() { _ = conn.Close() })
				var id int64
				must(t, conn.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id))
				return conn, id
			}
			for range 50 { // so that there is an id for the stranger to get
				connect()
			}
			proxy := dbtest.NewProxy(t, s.Addr(t))
			a, silent := s.application(t), server{s.Through(t, proxy), s.pool}.application(t)
			holder, _ := a.begin(t, sql.LevelRepeatableRead)
			if locked, err := a.lock(t.Context(), holder, "n", true); err != nil || !locked {
				t.Fatal(locked, err)
			}
			tx, on := silent.begin(t, sql.LevelRepeatableRead)
			var beside atomic.Pointer[driver.OnSideConn]
			beside.Store(&a.beside)
			var kills atomic.Int32
			silent.beside = func(ctx context.Context, do func(context.Context, driver.Upkeep) error) error {
				defer kills.Add(1)
				return (*beside.Load())(ctx, do)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			locking := start(t, func(context.Context) (bool, error) { return silent.lock(ctx, tx, "n", true) })
			s.blocked(t, on)
			proxy.Freeze()
			own.Kill()
			own.Start()
			again := onSideConn(t, s.engine(t))
			beside.Store(&again)
			blocker, _ := connect()
			gateKey := id()
			_, err := blocker.ExecContext(t.Context(), "DO GET_LOCK(?, 0)", gateKey)
			must(t, err)
			var stranger *sql.Conn
			for conn, id := connect(); ; conn, id = connect() {
				if stranger = conn; id == on.conn {
					break
				}
				if id > on.conn {
					t.Fatalf("ids go on at %d: nobody gets %d again", id, on.conn)
				}
			}
			waiting := start(t, func(ctx context.Context) (got sql.NullInt64, err error) {
				err = stranger.QueryRowContext(ctx, "SELECT GET_LOCK(?, 600)", gateKey).Scan(&got)
				return got, err
			})
			eventually(t, "the stranger to wait", func() bool {
				return s.number(t, "SELECT COUNT(*) FROM "+s.Processes()+" WHERE id = ? AND info LIKE 'SELECT GET_LOCK%'", on.conn) == 1 ||
					s.number(t, "SELECT COUNT(*) FROM "+s.Processes()+" WHERE id = ? AND command = 'Execute'", on.conn) == 1
			})
			before := kills.Load()
			cancel()
			eventually(t, "some KILLs", func() bool { return kills.Load() > before+5 })
			_, err = blocker.ExecContext(t.Context(), "DO RELEASE_LOCK(?)", gateKey)
			must(t, err)
			if got := <-waiting; got.err != nil || got.value.Int64 != 1 {
				t.Errorf("the stranger's query was ended: %v %v", got.value, got.err)
			}
			if got := <-locking; got.err == nil || errors.Is(got.err, driver.ErrRetry) {
				t.Errorf("%+v, want what a connection that is gone gives", got)
			}
		})
	}
}
