package bench

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
)

const (
	heldLocks    = 2000
	upkeepTTL    = 5 * time.Second
	beat         = upkeepTTL / 5
	upkeepWindow = 6 * beat
)

// BenchmarkUpkeep counts the rows that a client writes to keep 2,000 locks: by triggers, so that
// nothing that is written escapes. On MySQL and MariaDB the server counts, whatever is written on
// it, since a trigger there takes from a statement the LAST_INSERT_ID by which a heartbeat knows
// that it found its row.
func BenchmarkUpkeep(b *testing.B) {
	each(b, func(b *testing.B, k kind) {
		d := k.create(b)
		count := newCounter()
		a, probe := d.mustOpen(b, 8, count), d.mustOpen(b, 1, nil)
		c := a.mustClient(b, dblock.WithTTL(upkeepTTL))
		var wg sync.WaitGroup
		errs := make([]error, 8)
		locks := make([]held, heldLocks)
		for g := range errs {
			wg.Go(func() {
				for i := g; i < heldLocks && errs[g] == nil; i += len(errs) {
					locks[i], errs[g] = c.lock(b.Context(), fmt.Sprintf("name/%d", i))
				}
			})
		}
		wg.Wait()
		require.NoError(b, errors.Join(errs...))
		for _, statement := range countRows(k) {
			require.NoError(b, probe.exec(b.Context(), statement))
		}
		before := rowsWritten(b, probe)
		count.reset()
		var beats float64
		for b.Loop() {
			start := time.Now()
			time.Sleep(upkeepWindow)
			beats += float64(time.Since(start)) / float64(beat)
		}
		all, _, words := count.reset()
		written := rowsWritten(b, probe) - before
		for _, l := range locks {
			require.NoError(b, l.Context().Err())
		}
		b.Logf("%.1f heartbeats: %d rows written; %s", beats, written, words)
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(written)/beats, "rows-written/heartbeat")
		b.ReportMetric(float64(all)/beats, "stmt/heartbeat")
		for _, statement := range countNoMore(k) {
			require.NoError(b, probe.exec(b.Context(), statement))
		}
	})
}

// triggers calls f for each change of each of dblock's tables that anything but a migration writes.
func triggers(f func(trigger, event, table string) string) (statements []string) {
	for _, table := range []string{"dblock_sessions", "dblock_heartbeats", "dblock_locks", "dblock_waiters"} {
		for _, event := range []string{"INSERT", "UPDATE", "DELETE"} {
			statements = append(statements, f(table+"_bench_"+strings.ToLower(event), event, table))
		}
	}
	return statements
}

// countRows sets the counting up.
func countRows(k kind) []string {
	if k.engine == migrate.MySQL {
		return nil
	}
	const count = "UPDATE bench_written SET n = n + 1"
	statements := []string{"CREATE TABLE bench_written (n bigint NOT NULL)", "INSERT INTO bench_written (n) VALUES (0)"}
	action := count
	switch k.engine {
	case migrate.Postgres:
		statements = append(statements, "CREATE FUNCTION bench_count() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "+
			count+"; RETURN NULL; END $$")
		action = "EXECUTE FUNCTION bench_count()"
	case migrate.SQLite:
		action = "BEGIN " + count + "; END"
	}
	return append(statements, triggers(func(trigger, event, table string) string {
		return fmt.Sprintf("CREATE TRIGGER %s AFTER %s ON %s FOR EACH ROW %s", trigger, event, table, action)
	})...)
}

func countNoMore(k kind) []string {
	if k.engine == migrate.MySQL {
		return nil
	}
	return triggers(func(trigger, _, table string) string {
		if k.engine == migrate.Postgres {
			return fmt.Sprintf("DROP TRIGGER %s ON %s", trigger, table)
		}
		return "DROP TRIGGER " + trigger
	})
}

// rowsWritten is how many rows were written since some time before.
func rowsWritten(b *testing.B, a *app) int {
	b.Helper()
	if a.engine == migrate.MySQL {
		return a.rowsOfServer(b)
	}
	n, err := a.number(b.Context(), "SELECT n FROM bench_written")
	require.NoError(b, err)
	return n
}

// rowsOfServer is how many rows were written by the server's own count: on PostgreSQL in this
// database, on MySQL and MariaDB in all of them. SQLite does not count: 0.
func (a *app) rowsOfServer(b testing.TB) int {
	b.Helper()
	query := "SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint FROM pg_stat_user_tables"
	switch {
	case a.engine == migrate.SQLite:
		return 0
	case a.kind.name == "mysql":
		query = "SELECT CAST(SUM(`COUNT`) AS SIGNED) FROM information_schema.INNODB_METRICS WHERE NAME IN " +
			"('dml_inserts', 'dml_updates', 'dml_deletes')"
	case a.kind.name == "mariadb":
		// MariaDB has these metrics no more. It counts rows of temporary tables apart.
		query = "SELECT CAST(SUM(VARIABLE_VALUE) AS SIGNED) FROM information_schema.GLOBAL_STATUS WHERE " +
			"VARIABLE_NAME IN ('HANDLER_WRITE', 'HANDLER_UPDATE', 'HANDLER_DELETE')"
	}
	n, err := a.number(b.Context(), query)
	require.NoError(b, err)
	return n
}
