package bench

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
)

// vacuumed are the tables with rows that change while locks are taken and held.
var vacuumed = []string{"dblock_sessions", "dblock_heartbeats", "dblock_locks", "dblock_waiters"}

// noAutovacuum leaves all dead rows to vacuum. It does nothing elsewhere than on PostgreSQL.
func (a *app) noAutovacuum(b testing.TB) {
	b.Helper()
	if a.engine != migrate.Postgres {
		return
	}
	for _, table := range vacuumed {
		require.NoError(b, a.exec(b.Context(), fmt.Sprintf("ALTER TABLE %s SET (autovacuum_enabled = off)", table)))
	}
}

// vacuum reports the dead rows that a VACUUM finds, how long it takes, and how many bytes of WAL it
// writes. On MySQL and MariaDB purge goes on by itself: there vacuum reports the transactions with
// old rows that are not removed yet. On SQLite there is nothing to do.
func (m meter) vacuum(b testing.TB, report func(v float64, unit string)) {
	b.Helper()
	query := "SELECT `COUNT` FROM information_schema.INNODB_METRICS WHERE NAME = 'trx_rseg_history_len'"
	switch {
	case m.engine == migrate.SQLite:
		return
	case m.engine == migrate.Postgres:
		query = "SELECT coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables"
	case m.kind.name == "mariadb":
		query = "SELECT CAST(variable_value AS SIGNED) FROM information_schema.global_status " +
			"WHERE variable_name = 'Innodb_history_list_length'"
	}
	dead, err := m.number(b.Context(), query)
	require.NoError(b, err)
	report(float64(dead), "dead")
	if m.engine != migrate.Postgres {
		return
	}
	_, log, seconds := m.during(b, func() {
		require.NoError(b, m.exec(b.Context(), "VACUUM "+strings.Join(vacuumed, ", ")))
	})
	report(1000*seconds, "vacuum-ms")
	report(log*seconds/1000, "vacuum-kB")
}
