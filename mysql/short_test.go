package mysql_test

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/mysql"
)

// Broken by a wait of a request that looks, on a connection of the pool, why it did not get a name.
func TestNoStatementOfATakeWaitsForARow(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		proxy := dbtest.NewProxy(t, s.Addr(t))
		a := server{s.Through(t, proxy), s.pool}.attending(t)
		var waits atomic.Int64
		proxy.Watch(func(sent []byte) { // its first use prepares a statement
			if bytes.Contains(sent, []byte("-- name: LockRowInTurn ")) {
				waits.Add(1)
			}
		})
		does(t, a, protocol.Release(a.take(t, "n"), false, false))
		row := s.transaction(t, "SELECT name FROM dblock_locks FOR UPDATE")
		is(t, require.ErrOf(driver.Do(t.Context(), a, protocol.Take{Request: a.request("n")})), driver.ErrBusy)
		proxy.Watch(nil)
		assert.Equal(t, waits.Load(), 0, "statements that wait")
		require.NoError(t, row.Commit())
	})
}

// MariaDB keeps in a file what an UPDATE of several tables sets, if there is text and it is not in
// the first table.
func TestATakeKeepsNothingInAFile(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.actor(t)
		conn, err := s.open(t, nil).Conn(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		files := func() (n int64) {
			require.NoError(t, conn.QueryRowContext(t.Context(),
				"SHOW SESSION STATUS LIKE 'Created_tmp_disk_tables'").Scan(new(string), &n))
			return n
		}
		does(t, a, protocol.Release(a.take(t, "n"), false, false))
		before := files()
		token, err := mysqldb.New(mysql.AsWritten(conn)).TakeRow(t.Context(), mysqldb.TakeRowParams{
			Name: "n", Session: a.session, Host: "h", Thread: "t", Attempt: id(),
		})
		if err != nil || token == 0 {
			t.Fatalf("token %d: %v", token, err)
		}
		assert.Equal(t, files()-before, 0, "files")
	})
}

// A short way is there for its round trips. The figures are those in the comments of short.
func TestAShortWayTakesFewerRoundTrips(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		proxy := dbtest.NewProxy(t, s.Addr(t))
		a := server{s.Through(t, proxy), s.pool}.attending(t)
		held := func(name string) protocol.Held { return a.take(t, name) }
		free := func(name string) { does(t, a, protocol.Release(held(name), false, false)) }
		for says, c := range map[string]struct {
			scene          func(name string) protocol.Op
			short, general int64
		}{
			"a take": {func(name string) protocol.Op {
				free(name)
				return protocol.Take{Request: a.request(name)}
			}, 1, 4},
			"a take of a name without row": {func(name string) protocol.Op {
				return protocol.Take{Request: a.request(name)}
			}, 5, 8},
			"a release": {func(name string) protocol.Op { return protocol.Release(held(name), false, false) }, 1, 4},
		} {
			var got [2]int64
			for i := range got {
				for round := range 2 { // the first prepares its statements
					op := c.scene(fmt.Sprint(says, i, round))
					if i == 1 {
						op = drivertest.General{Op: op}
					}
					var requests atomic.Int64
					proxy.Watch(func([]byte) { requests.Add(1) })
					does(t, a, op)
					proxy.Watch(nil)
					got[i] = requests.Load()
				}
			}
			if got != [2]int64{c.short, c.general} {
				t.Errorf("%s: %d round trips, the general way %d; want %d and %d", says, got[0], got[1], c.short,
					c.general)
			}
		}
	})
}

// does runs an op that does something.
func does(t *testing.T, a actor, op protocol.Op) {
	t.Helper()
	if result, err := driver.Do(t.Context(), a, op); err != nil || result.Outcome == protocol.Undone {
		t.Fatalf("%+v: %+v, %v", op, result, err)
	}
}
