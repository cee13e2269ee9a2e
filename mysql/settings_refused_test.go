package mysql_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/mysql"
)

// Settings with which no lock could be kept are refused before there is one, in words that name
// them.
func TestSettingsThatAreRefused(t *testing.T) {
	for _, refused := range []struct{ kind, variable, value string }{
		{"", "autocommit", "0"},
		{"", "sql_log_bin", "0"},
		{"", "completion_type", "1"},
		{"", "completion_type", "'RELEASE'"},
		{"", "character_set_connection", "latin1"},
		{"", "character_set_client", "latin1"},
		{"", "character_set_results", "latin1"},
		{dbtest.KindMariaDB, "sql_mode", "'STRICT_TRANS_TABLES,EMPTY_STRING_IS_NULL'"},
	} {
		t.Run(refused.variable+"="+refused.value, func(t *testing.T) {
			each(t, func(t *testing.T, s server) {
				if refused.kind != "" && refused.kind != s.Kind {
					return
				}
				says := func(err error) {
					t.Helper()
					if !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), refused.variable) {
						t.Error(err)
					}
				}
				e := inside.Of(mysql.New(s.open(t, variable(refused.variable, refused.value)))).Backend
				a := actor{Backend: e, session: id()}
				if err := a.OpenSession(t.Context(), driver.Session{ID: a.session, Host: "h", TTL: ttl}); err == nil {
					t.Error("a session was opened")
					r := a.request("n")
					if _, taken, err := drivertest.Take(t.Context(), a, r); err != nil || taken &&
						s.number(t, "SELECT COUNT(*) FROM dblock_locks WHERE attempt = ?", r.Attempt) == 0 {
						t.Error("a grant was not committed:", err)
					}
				} else {
					says(err)
				}
				u, err := e.Upkeep(t.Context(), "s")
				if says(err); err == nil {
					defer u.Close()
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				says(drivertest.Listen(ctx, e, id(), cancel, func(protocol.Hint) {}))
			})
		})
	}
}

// A list that the server cuts short would be taken for the whole of it, also by what the
// application has set on a single connection that it has borrowed.
func TestALimitOfRowsCutsNoListShort(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		e := inside.Of(mysql.New(s.open(t, variable("sql_select_limit", "1")))).Backend
		err := e.OpenSession(t.Context(), driver.Session{ID: id(), Host: "h", TTL: ttl})
		if !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "sql_select_limit") {
			t.Error(err)
		}
		defer e.Attend("", ttl)()
		a := s.actor(t)
		held := []protocol.Held{a.take(t, "n"), a.take(t, "m")}
		if _, released, err := drivertest.Batch(t.Context(), e, nil, held); err != nil || !released[0] || !released[1] {
			t.Errorf("%v, %v: want both released", released, err)
		}
	})
}

// A clock that stands still ends a fixed lease at once for everybody else, or never.
func TestAClockThatStandsStillIsRefused(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		for _, value := range []string{"1000000000", "UNIX_TIMESTAMP() + 86400", "UNIX_TIMESTAMP()",
			"UNIX_TIMESTAMP(SYSDATE(6))"} {
			e := inside.Of(mysql.New(s.open(t, variable("timestamp", value)))).Backend
			err := e.OpenSession(t.Context(), driver.Session{ID: id(), Host: "h", TTL: ttl})
			if !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "timestamp") {
				t.Errorf("%s: %v", value, err)
			}
			u, err := e.Upkeep(t.Context(), "s")
			require.NoError(t, err)
			var now, really float64
			require.NoError(t, mysql.ConnOf(u).QueryRowContext(t.Context(),
				"SELECT @@timestamp, UNIX_TIMESTAMP(SYSDATE(6))").Scan(&now, &really))
			if now-really > 60 || really-now > 60 {
				t.Errorf("%s: a connection of the engine's own stands at %f, at %f", value, now, really)
			}
			require.NoError(t, u.Close())
		}
	})
}

// A transaction of the application's may have such a clock: nothing is decided by it there.
func TestTheClockOfATransactionDecidesNothing(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		for _, value := range []string{"1000000000", "UNIX_TIMESTAMP() + 86400"} {
			c, other := s.client(t, s.open(t, nil)), s.client(t, s.open(t, nil))
			leased, err := other.Lock(t.Context(), "leased"+value, dblock.Lease(time.Minute))
			require.NoError(t, err)
			held, err := c.Lock(t.Context(), "held"+value, dblock.Lease(time.Minute))
			require.NoError(t, err)
			tx, err := s.open(t, variable("timestamp", value)).BeginTx(t.Context(), nil)
			require.NoError(t, err)
			is(t, c.TryLockTx(t.Context(), tx, "leased"+value), dblock.ErrNotAcquired)
			require.NoError(t, c.Guard(t.Context(), tx, held))
			require.NoError(t, c.UnlockTx(t.Context(), tx, held))
			require.NoError(t, c.LockTx(t.Context(), tx, "new"+value))
			_, err = other.TryLock(t.Context(), "new"+value)
			is(t, err, dblock.ErrNotAcquired)
			require.NoError(t, tx.Commit())
			next, err := other.TryLock(t.Context(), "held"+value, dblock.Lease(time.Minute))
			require.NoError(t, err)
			_, err = c.TryLock(t.Context(), "held"+value)
			is(t, err, dblock.ErrNotAcquired)
			require.NoError(t, next.Unlock(t.Context()))
			require.NoError(t, leased.Unlock(t.Context()))
		}
	})
}

// MySQL refuses statements with an EXISTS that it cannot turn into a join (error 3973), where it is
// told to make joins of all. That of a guard has one where the clock is a view.
func TestSubqueriesNeedNotBeJoins(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		if s.Kind != dbtest.KindMySQL {
			return
		}
		pool := s.open(t, variable("optimizer_switch", "'subquery_to_derived=on'"))
		e := mysql.New(pool)
		mysql.ByView(inside.Of(e).Backend)
		c, err := dblock.New(e)
		require.NoError(t, err)
		defer c.Close(t.Context())
		l, err := c.Lock(t.Context(), "n")
		require.NoError(t, err)
		tx, err := pool.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, c.Guard(t.Context(), tx, l))
		require.NoError(t, tx.Commit())
		_, err = inside.Of(mysql.New(pool)).PurgeRecords(t.Context(), time.Hour, 10)
		require.NoError(t, err)
	})
}

// Metadata arrives as it was given, whatever the connection's character set. A name may have any
// text. What else cannot be carried is refused in words.
func TestTextsThatACharacterSetDoesNotHave(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		for _, params := range []string{
			"charset=utf8", "charset=utf8&interpolateParams=true", "charset=utf8&sql_mode=''", "charset=latin1",
			"charset=ascii", "charset=binary",
		} {
			t.Run(params, func(t *testing.T) {
				a := on(t, s.open(t, s.with(t, params)))
				want := map[string]string{"wer": "Jürgen 😀", "“was”": "日本\t\\"}
				text, err := json.Marshal(want)
				require.NoError(t, err)
				r := a.request("😀 " + params)
				r.Metadata = string(text)
				if _, taken, err := drivertest.Take(t.Context(), a, r); err != nil || !taken {
					t.Fatal(taken, err)
				}
				places, err := a.Read(t.Context(), "", []string{r.Name}, driver.All)
				require.NoError(t, err)
				var got map[string]string
				require.NoError(t, json.Unmarshal([]byte(places[0].Holders[0].Metadata), &got))
				if !maps.Equal(got, want) {
					t.Errorf("%q became %q", want, got)
				}
				r = a.request("plain " + params)
				r.Thread = "😀"
				if _, _, err = drivertest.Take(t.Context(), a, r); strings.HasPrefix(params, "charset=utf8") &&
					!strings.Contains(params, "sql_mode") &&
					(!errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "charset=utf8mb4")) {
					t.Error(err)
				}
			})
		}
	})
}
