package dbtest_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestAKilledServerComesBackWithWhatWasCommitted(t *testing.T) {
	for kind, own := range map[string]func(testing.TB) *dbtest.Server{
		dbtest.KindPostgres: dbtest.OwnPostgres, dbtest.KindMariaDB: dbtest.OwnMariaDB,
		dbtest.KindMySQL: dbtest.OwnMySQL,
	} {
		t.Run(kind, func(t *testing.T) {
			server := own(t)
			pool := server.Empty(t).SQL(t)
			for _, statement := range []string{"CREATE TABLE t (n int)", "INSERT INTO t VALUES (1)"} {
				require.NoError(t, require.ErrOf(pool.ExecContext(t.Context(), statement)))
			}
			server.Kill()
			require.Error(t, pool.PingContext(t.Context()), "a killed server answers")
			server.Start()
			require.Equal(t, count(t, pool), 1, "rows after the restart")
			server.Pause()
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			require.Error(t, require.ErrOf(pool.ExecContext(ctx, "INSERT INTO t VALUES (2)")),
				"a paused server answers")
			server.Resume()
			_ = count(t, pool)
			server.Pause() // a paused server can be killed, and removed
			server.Kill()
			server.Start()
			_ = count(t, pool)
		})
	}
}

func count(t *testing.T, pool *sql.DB) (n int) {
	t.Helper()
	require.NoError(t, pool.QueryRowContext(t.Context(), "SELECT count(*) FROM t").Scan(&n))
	return n
}

func TestProxyFaults(t *testing.T) {
	echo := listen(t)
	p := dbtest.NewProxy(t, echo)

	t.Run("forwards", func(t *testing.T) {
		if got, err := say(dial(t, p), "hello"); got != "hello" {
			t.Fatal(got, err)
		}
	})
	t.Run("cut ends old and new connections until it is healed", func(t *testing.T) {
		old := dial(t, p)
		require.NoError(t, require.ErrOf(say(old, "hello")))
		p.Cut()
		require.Error(t, require.ErrOf(say(old, "hello")), "an old connection goes on")
		require.Error(t, require.ErrOf(say(dial(t, p), "hello")), "a new connection goes through")
		p.Heal()
		require.NoError(t, require.ErrOf(say(dial(t, p), "hello")))
	})
	t.Run("a frozen connection delivers when it is healed", func(t *testing.T) {
		conn := dial(t, p)
		require.NoError(t, require.ErrOf(say(conn, "hello")))
		p.Freeze()
		if got, err := say(conn, "world"); !errors.Is(err, context.DeadlineExceeded) && !timeout(err) {
			t.Fatal(got, err)
		}
		p.Heal()
		if got, err := hear(conn, 5); got != "world" {
			t.Fatal(got, err)
		}
	})
	t.Run("a dropped reply tears its connection, and the request went through", func(t *testing.T) {
		conn := dial(t, p)
		var seen atomic.Bool
		p.Watch(func(request []byte) {
			if string(request) == "COMMIT" {
				seen.Store(true)
				p.DropReplies()
			}
		})
		require.NoError(t, require.ErrOf(say(conn, "BEGIN ")))
		if got, err := say(conn, "COMMIT"); !timeout(err) {
			t.Fatal(got, err)
		}
		if !seen.Load() {
			t.Fatal("the request was not seen")
		}
		p.Watch(nil)
		p.Heal()
		if _, err := hear(conn, 1); err == nil || timeout(err) {
			t.Fatal("the torn connection lives on:", err)
		}
	})
}

// listen is a server that says back what it hears.
func listen(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return l.Addr().String()
}

func dial(t *testing.T, p *dbtest.Proxy) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func say(conn net.Conn, text string) (string, error) {
	if _, err := conn.Write([]byte(text)); err != nil {
		return "", err
	}
	return hear(conn, len(text))
}

func hear(conn net.Conn, n int) (string, error) {
	if err := conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		return "", err
	}
	buffer := make([]byte, n)
	_, err := io.ReadFull(conn, buffer)
	return string(buffer), err
}

func timeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}
