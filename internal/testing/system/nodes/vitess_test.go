package nodes

import (
	"database/sql"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
)

// vitess is vtgate and its tablets, in one process that vtcombo runs, over a MySQL server.
type vitess struct {
	server *dbtest.Server
	db     dbtest.Database
}

// startVitess starts vtcombo, with dblock's tables in the keyspace that it has at its start.
func startVitess(t *testing.T) cluster {
	server := dbtest.Own(t, dbtest.KindVitess)
	v := &vitess{server, dbtest.Database{Kind: server.Kind, Engine: migrate.MySQL, DSN: server.DSN}}
	v.db.Migrate(t)
	return v
}

func (v *vitess) open(t *testing.T, _ int) *sql.DB { return v.db.SQL(t) }

// faults kill the process, the MySQL server, or the connections between them, and with the last
// the transactions of the clients.
func (v *vitess) faults() map[string]func(t *testing.T, random *rand.Rand) {
	return map[string]func(t *testing.T, random *rand.Rand){
		"connections to MySQL killed": func(t *testing.T, _ *rand.Rand) {
			db := v.db.SQL(t)
			defer db.Close()
			_, _ = dbtest.EndBelow(t.Context(), db)
		},
		"vtgate and tablets killed": func(_ *testing.T, random *rand.Rand) {
			v.server.Kill()
			<-time.After(time.Duration(random.Int64N(int64(time.Second))))
			v.server.Start()
		},
		"MySQL killed": func(t *testing.T, random *rand.Rand) {
			require.NoError(t, v.server.RestartBelow(t.Context(), time.Duration(random.Int64N(int64(time.Second)))))
		},
	}
}
