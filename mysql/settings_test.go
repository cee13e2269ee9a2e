package mysql_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	sqldriver "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/mysql"
)

// setting is something that applications set on their pools.
type setting struct {
	name   string
	kind   string // where only one server knows it
	change func(*sqldriver.Config)
}

var settings = []setting{
	{"clientFoundRows", "", func(c *sqldriver.Config) { c.ClientFoundRows = true }},
	{"no parseTime", "", func(c *sqldriver.Config) { c.ParseTime = false }},
	{"parseTime and loc", "", func(c *sqldriver.Config) { c.ParseTime, c.Loc = true, time.FixedZone("IST", 19800) }},
	{"interpolateParams", "", func(c *sqldriver.Config) { c.InterpolateParams = true }},
	{"latin1", "", variable("NAMES", "latin1")},
	{"east", "", variable("time_zone", "'+13:00'")},
	{"west", "", variable("time_zone", "'-11:00'")},
	{"ANSI", "",
		variable("sql_mode",
			"'ANSI,STRICT_ALL_TABLES,PAD_CHAR_TO_FULL_LENGTH,HIGH_NOT_PRECEDENCE,NO_BACKSLASH_ESCAPES,IGNORE_SPACE'")},
	{"no mode", "", variable("sql_mode", "''")},
	{"simultaneous assignment", dbtest.KindMariaDB, variable("sql_mode", "'SIMULTANEOUS_ASSIGNMENT'")},
	{"safe updates", "", variable("sql_safe_updates", "1")},
	{"small joins", "", variable("max_join_size", "1000")},
	{"a number for the next insert", "", variable("insert_id", "7")},
	{"other steps of numbers", "", func(c *sqldriver.Config) {
		variable("auto_increment_increment", "7")(c)
		variable("auto_increment_offset", "3")(c)
	}},
	{"short recursions", dbtest.KindMySQL, variable("cte_max_recursion_depth", "1")},
	{"short recursions", dbtest.KindMariaDB, variable("max_recursive_iterations", "1")},
	{"keys that must be there", dbtest.KindMySQL, variable("sql_require_primary_key", "1")},
	{"short statements", dbtest.KindMySQL, variable("max_execution_time", "300")},
	{"short statements", dbtest.KindMariaDB, variable("max_statement_time", "0.3")},
	{"snapshot isolation", dbtest.KindMariaDB, variable("innodb_snapshot_isolation", "1")},
	{"READ UNCOMMITTED", "", isolation("READ-UNCOMMITTED")},
	{"READ COMMITTED", "", isolation("READ-COMMITTED")},
	{"REPEATABLE READ", "", isolation("REPEATABLE-READ")},
	{"SERIALIZABLE", "", isolation("SERIALIZABLE")},
}

func variable(name, value string) func(*sqldriver.Config) {
	return func(c *sqldriver.Config) {
		if name == "NAMES" {
			if err := c.Apply(sqldriver.Charset(value, "")); err != nil {
				panic(err)
			}
			return
		}
		if c.Params == nil {
			c.Params = map[string]string{}
		}
		c.Params[name] = value
	}
}

// isolation has a name on each server.
func isolation(level string) func(*sqldriver.Config) { return variable("isolation", "'"+level+"'") }

func (s server) apply(change func(*sqldriver.Config)) func(*sqldriver.Config) {
	return func(c *sqldriver.Config) {
		change(c)
		if level, there := c.Params["isolation"]; there {
			delete(c.Params, "isolation")
			c.Params[map[string]string{dbtest.KindMySQL: "transaction_isolation",
				dbtest.KindMariaDB: "tx_isolation"}[s.Kind]] = level
		}
	}
}

func TestWhateverTheApplicationHasSet(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		for _, set := range settings {
			if set.kind == "" || set.kind == s.Kind {
				t.Run(set.name, func(t *testing.T) { s.lifeOfALock(t, s.apply(set.change)) })
			}
		}
	})
}

func (s server) lifeOfALock(t *testing.T, change func(*sqldriver.Config)) {
	s.exec(t, "DELETE FROM dblock_waiters")
	s.exec(t, "DELETE FROM dblock_locks")
	pool := s.open(t, change)
	pool.SetMaxOpenConns(6)
	e := inside.Of(mysql.New(pool)).Backend
	a, b := actor{Backend: e, session: id()}, actor{Backend: e, session: id()}
	name := "ü" + id()
	for _, a := range []actor{a, b} {
		require.NoError(t, a.OpenSession(t.Context(), driver.Session{ID: a.session, Host: "hôte", App: "app",
			TTL: ttl}))
	}
	u, err := e.Upkeep(t.Context(), "s")
	require.NoError(t, err)
	defer u.Close()
	for range 2 {
		if alive, err := u.Heartbeat(t.Context(), a.session, ttl); err != nil || !alive {
			t.Fatal(alive, err)
		}
	}
	if alive, err := u.Heartbeat(t.Context(), "nobody", ttl); err != nil || alive {
		t.Fatal(alive, err)
	}

	first := a.take(t, name)
	if _, taken, err := drivertest.Take(t.Context(), b, b.request(name)); err != nil || taken {
		t.Fatal(taken, err)
	}
	h := b.look(t, name).Holder
	if time.Since(h.Since).Abs() > time.Minute || h.Left > ttl || h.Left < ttl-10*time.Second ||
		h.Grant.Token != first.Token {
		t.Fatalf("%+v", h)
	}
	require.NoError(t, require.ErrOf(drivertest.Release(t.Context(), a, first, false)))
	is(t, require.ErrOf(drivertest.Release(t.Context(), a, first, false)), driver.ErrNotHeld)
	held := b.take(t, name)
	if held.Token <= first.Token {
		t.Fatal("the token did not rise")
	}
	attempt := a.enqueue(t, name)
	if claims, err := u.Claims(t.Context(), a.session, nil); err != nil || len(claims) != 1 {
		t.Fatal(claims, err)
	}
	next, err := sole(drivertest.Release(t.Context(), b, held, false))
	if err != nil || next.Attempt != attempt || next.Grant.Token <= held.Token {
		t.Fatal(next, err)
	}

	// New names side by side: what one statement locks between the keys must not stop another.
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for j := range 20 {
				name := fmt.Sprintf("%s-%d-%d", id(), i, j)
				r := b.request(name)
				_, taken, err := retried(func() (protocol.Grant, bool, error) {
					return drivertest.Take(t.Context(), e, r)
				})
				if err != nil || !taken {
					t.Error(taken, err)
				}
				if _, outcome, err := retried(func() (protocol.Grant, protocol.Outcome, error) {
					return drivertest.Join(t.Context(), e, a.request(name))
				}); err != nil || outcome != protocol.Queued {
					t.Error(outcome, err)
				}
			}
		})
	}
	all.Wait()

	s.exec(t, "UPDATE dblock_heartbeats SET expires_at = 1 WHERE session_id = ?", a.session)
	if _, taken, err := drivertest.TakeOver(t.Context(), b, b.session, name, b.look(t, name).Holder); err != nil ||
		!taken {
		t.Fatal(taken, err)
	}
	if n, _, err := b.Purge(t.Context(), -time.Hour, "", 1000); err != nil || n == 0 {
		t.Fatal(n, err)
	}
	require.NoError(t, b.EndSession(t.Context(), b.session, false))
}

func retried[T, U any](try func() (T, U, error)) (T, U, error) {
	for {
		v, w, err := try()
		if !errors.Is(err, driver.ErrRetry) {
			return v, w, err
		}
	}
}

func TestAGrantThatIsNotCommittedIsNotSeen(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.actor(t), s.actor(t)
		a.take(t, "n")
		attempt := b.enqueue(t, "n")
		pool := s.open(t, s.apply(isolation("READ-UNCOMMITTED")))
		e := inside.Of(mysql.New(pool)).Backend
		granting := s.transaction(t,
			"UPDATE dblock_locks SET session_id = ?, attempt = ?, waiters = 0 WHERE name = 'n'", b.session, attempt)
		_, err := granting.Exec("DELETE FROM dblock_waiters WHERE name = 'n'")
		require.NoError(t, err)
		states, err := e.Read(t.Context(), b.session, []string{"n"}, 0)
		if err != nil || len(states) != 1 || states[0].Holder.Session != a.session || len(states[0].Queued) != 1 {
			t.Fatalf("%+v %v", states, err)
		}
		u, err := e.Upkeep(t.Context(), "s")
		require.NoError(t, err)
		defer u.Close()
		claims, err := u.Claims(t.Context(), b.session, nil)
		if err != nil || len(claims) != 1 || claims[0].Token != 0 {
			t.Fatalf("%+v %v", claims, err)
		}
	})
}
