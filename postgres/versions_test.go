package postgres

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// hot are the statements of grants, releases and hand-overs of a name, and those of its guards and
// of its state, as a session sends them.
func hot(name, session string, token int64) map[string]statement {
	timeout := "10s"
	return map[string]statement{
		"TakeLock": query(postgresdb.TakeLock, postgresdb.TakeLockParams{
			Name: name, Session: session, Attempt: "probe", LockTimeout: timeout,
		}),
		"TakeShare": query(postgresdb.TakeShare, postgresdb.TakeShareParams{
			Name: name, Session: session, Attempt: "probe", Units: 1, Capacity: 2, LockTimeout: timeout,
		}),
		"ReleaseIdle": query(postgresdb.ReleaseIdle, postgresdb.ReleaseIdleParams{
			Name: name, Session: session, Token: token,
		}),
		"JoinQueue": query(postgresdb.JoinQueue, postgresdb.JoinQueueParams{
			Name: name, Session: session, Attempt: "probe", Members: 1, LockTimeout: timeout,
		}),
		"LockRowWithin": query(postgresdb.LockRowWithin, postgresdb.LockRowWithinParams{
			Name: name, LockTimeout: timeout,
		}),
		"HandToHead": query(postgresdb.HandToHead, postgresdb.HandToHeadParams{
			Name: name, Session: session, Token: token, Self: session,
		}),
		"LockName": query(postgresdb.LockName, postgresdb.LockNameParams{
			Name: name, LockTimeout: timeout, Silence: "0",
		}),
		"ReadName": query(postgresdb.ReadName, name),
		"Places": query(postgresdb.Places, postgresdb.PlacesParams{
			Name: name, Lowest: lowestTicket, Most: firstPage,
		}),
		"WriteName": query(postgresdb.WriteName, postgresdb.WriteNameParams{
			Name: name, Session: session, Token: token, FirstToken: token, LastToken: token,
		}),
		"BatchRows": query(postgresdb.BatchRows, list([]batched{
			{Name: name, Session: session, Attempt: "probe"},
			{Order: 1, Name: name, Session: session, Attempt: "probe", Token: token},
		})),
		"Read": query(postgresdb.Read, postgresdb.ReadParams{Session: session, Names: list([]string{name})}),
		"ShareGuard": query(postgresdb.ShareGuard, postgresdb.ShareGuardParams{
			Name: name, Session: session, Token: token,
		}),
		"IsHeld":    query(postgresdb.IsHeld, postgresdb.IsHeldParams{Name: name, Session: session, Token: token}),
		"LockRowTx": query(postgresdb.LockRowTx, name),
	}
}

// explain runs EXPLAIN for a statement, prepared as a driver prepares it, and rolls it back.
func (s *script) explain(plans, options string, st statement) string {
	s.Helper()
	ctx := s.Context()
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{})
	require.NoError(s, err)
	defer tx.Rollback(context.WithoutCancel(ctx))
	args := make([]string, len(st.args))
	for i, arg := range st.args {
		args[i] = "'" + strings.ReplaceAll(fmt.Sprint(arg), "'", "''") + "'"
	}
	execute := "EXECUTE probe"
	if len(args) > 0 {
		execute += "(" + strings.Join(args, ", ") + ")"
	}
	for _, sql := range []string{"SET LOCAL plan_cache_mode = force_" + plans + "_plan", "PREPARE probe AS " + st.sql} {
		require.NoError(s, require.ErrOf(tx.Exec(ctx, sql)), sql)
	}
	rows, err := tx.Query(ctx, "EXPLAIN ("+options+") "+execute)
	require.NoError(s, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(s, err)
	require.NoError(s, require.ErrOf(tx.Exec(ctx, "DEALLOCATE probe")))
	return strings.Join(lines, "\n")
}

var buffers = regexp.MustCompile(`shared hit=(\d+)(?: read=(\d+))?`)

// pages returns how many pages a statement reads.
func (s *script) pages(st statement) (n int) {
	s.Helper()
	n = math.MaxInt
	for range 3 { // an insertion into an index may tidy it up
		plan := s.explain("custom", "ANALYZE, BUFFERS, COSTS OFF, TIMING OFF", st)
		if found := buffers.FindStringSubmatch(plan); found != nil { // the first line is that of the whole statement
			hit, _ := strconv.Atoi(found[1])
			read, _ := strconv.Atoi(found[2])
			n = min(n, hit+read)
		}
	}
	return n
}

// Broken by a key without an epoch, or by an epoch that does not grow: each version of a row that
// an old snapshot keeps has an entry in the index, which a search for the row reads. Broken too by
// a plan that sorts all versions: statistics from beside the snapshot make it look cheap, since a
// few rows have many pages.
func TestStatementsReadNoMorePagesBesideAnOldSnapshot(t *testing.T) {
	for _, others := range []int{0, 1, 10, 100} {
		t.Run(fmt.Sprint(others, " other names"), func(t *testing.T) {
			s := newScriptIn(t, dbtest.New(t, dbtest.KindPostgres))
			ctx := t.Context()
			s.session("a", time.Hour)
			s.session("b", time.Hour)
			s.exec(fmt.Sprintf("SELECT dblock_make('other ' || i) FROM generate_series(1, %d) i", others))
			s.load("n", 40)
			free := s.take(request("a", "first"))
			before := map[string]int{}
			for name, st := range hot("n", "a", free.Token) {
				before[name] = s.pages(st)
			}
			require.NoError(t, require.ErrOf(drivertest.Release(ctx, s, held("a", free), false)))
			// a plan that reads all versions of one row is as good now
			s.exec("VACUUM (ANALYZE) dblock_locks, dblock_waiters")
			tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
			require.NoError(t, err)
			defer tx.Rollback(context.WithoutCancel(ctx))
			var n int
			require.NoError(t, tx.QueryRow(ctx, "SELECT count(*) FROM dblock_locks").Scan(&n))
			s.load("n", 1000)
			s.exec("ANALYZE dblock_locks, dblock_waiters")
			free = s.take(request("a", "last"))
			for name, st := range hot("n", "a", free.Token) {
				// within its epoch a row has up to 32 grants, and each grant up to three versions
				if after := s.pages(st); after > before[name]+20 {
					t.Errorf("%s reads %d pages, and %d beside an old snapshot:\n%s", name, before[name], after,
						s.explain("custom", "ANALYZE, BUFFERS", st))
				} else {
					t.Logf("%s: %d, %d", name, before[name], after)
				}
			}
		})
	}
}

func held(session string, g protocol.Grant) protocol.Held {
	return protocol.Held{Name: "n", Session: session, Token: g.Token}
}

// load acquires and releases a name n times, and hands it over as often.
func (s *script) load(name string, n int) {
	s.Helper()
	for i := range n {
		g := s.take(request("a", fmt.Sprint("a", i)))
		s.enqueue(request("b", fmt.Sprint(name, i)))
		next, err := drivertest.Release(s.Context(), s, held("a", g), true)
		require.NoError(s, err)
		require.NoError(s, require.ErrOf(drivertest.Release(s.Context(), s, held("b", next[0].Grant), false)))
	}
}

// whole is a plan that reads all versions of a name, or all names.
var whole = regexp.MustCompile(`Seq Scan on dblock_(locks|waiters)|Sort Key: \w+\.epoch`)

// Broken by a table of a few pages, which PostgreSQL plans to read as a whole: a connection keeps
// such a plan while the table grows.
func TestStatementsFindTheirRowsByIndexHoweverFewThereAre(t *testing.T) {
	s := newScriptIn(t, dbtest.New(t, dbtest.KindPostgres))
	s.session("a", time.Hour)
	for _, names := range []int{1, 10, 10_000} {
		s.exec(fmt.Sprintf(`SELECT dblock_make('n' || i) FROM generate_series(1, %d) i`, names))
		s.exec("VACUUM (ANALYZE) dblock_locks, dblock_names, dblock_waiters, dblock_shares")
		for _, plans := range []string{"custom", "generic"} {
			for name, st := range hot("n1", "a", 1) {
				if plan := s.explain(plans, "COSTS OFF", st); whole.MatchString(plan) {
					t.Errorf("%d names, a %s plan of %s:\n%s", names, plans, name, plan)
				}
			}
		}
	}
}

// Broken by a search for the epoch of the snapshot alone: the row that a grant has moved to the
// next one meanwhile would count as missing.
func TestARowIsFoundWhoseEpochHasJustBegun(t *testing.T) {
	for name, release := range map[string]func(s *script, h protocol.Held) (protocol.Result, error){
		"by the short way": func(s *script, h protocol.Held) (protocol.Result, error) {
			return driver.Do(s.Context(), s, protocol.Release(h, false, false))
		},
		"by the general way": func(s *script, h protocol.Held) (protocol.Result, error) {
			return driver.Do(s.Context(), s, drivertest.General{Op: protocol.Release(h, false, false)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScriptIn(t, dbtest.New(t, dbtest.KindPostgres))
			s.session("a", time.Minute)
			s.session("b", time.Minute)
			g := s.take(units(request("a", "a1"), 1, 2))
			s.exec("UPDATE dblock_locks SET grants = 31")
			s.begin()
			s.do(query(postgresdb.TakeShare, postgresdb.TakeShareParams{Name: "n", Session: "b", Attempt: "b1",
				Units: 1, Capacity: 2, LockTimeout: "10s"}))
			s.behind(func() {
				h := held("a", g)
				h.Shared = true
				if released, err := release(s, h); err != nil || !released.Done() {
					t.Errorf("%+v, %v", released, err)
				}
			})
			require.Equal(t, s.number("SELECT epoch FROM dblock_locks"), 1, "the epoch")
			require.Equal(t, s.number("SELECT shared_units FROM dblock_locks"), 1, "the units")
			s.sound()
		})
	}
}

// Broken by a purge that does not lock the row of the name in dblock_names: a grant would be left
// without that row, and no purge would find it.
func TestANameIsMadeAgainBesideItsPurge(t *testing.T) {
	s := newScriptIn(t, dbtest.New(t, dbtest.KindPostgres))
	s.session("a", time.Minute)
	g := s.take(request("a", "a1"))
	require.NoError(t, require.ErrOf(drivertest.Release(t.Context(), s, held("a", g), false)))
	s.exec("UPDATE dblock_locks SET acquired_at = 1, token = 1")
	s.begin()
	s.do(query(postgresdb.Purge, postgresdb.PurgeParams{Most: 10}))
	s.behind(func() { s.take(request("a", "a2")) })
	for _, table := range []string{"dblock_names", "dblock_locks WHERE session_id = 'a'"} {
		require.Equal(t, s.number("SELECT count(*) FROM "+table), 1, table)
	}
	s.begin() // it waits for nobody
	s.do(query(postgresdb.LockRow, "n"))
	if n, _, err := s.Purge(t.Context(), -time.Hour, "", 10); err != nil || n != 0 {
		t.Errorf("%d purged, %v", n, err)
	}
	s.commit()
}

// Broken by a parameter that is no text in its place: names that are not ASCII would be refused.
func TestEveryStatementReadsItsTextsInDigits(t *testing.T) {
	conn, err := dbtest.Warm(t, dbtest.KindPostgres).Pool(t).Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	for text, digits := range postgresdb.Digits {
		if _, err := conn.Conn().Prepare(t.Context(), "", text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if _, err := conn.Conn().Prepare(t.Context(), "", digits); err != nil {
			t.Errorf("%s: %v", digits, err)
		}
	}
}
