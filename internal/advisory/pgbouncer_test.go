package advisory

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
)

// An idle pooler lends the same server connection again and again. Broken by looking at one
// connection alone.
func TestAPoolerOfTransactionsIsRefused(t *testing.T) {
	db := dbtest.Empty(t, dbtest.KindPostgres)
	direct := stageOn(t, db)
	through := db.PgBouncer(t, dbtest.PoolTransactions)
	for _, mode := range []string{"exec", "simple_protocol", "cache_statement"} {
		s := &stage{T: t, db: through}
		s.db.DSN = strings.Replace(s.db.DSN, "mode=exec", "mode="+mode, 1)
		k := s.client()
		for range 5 {
			_, _, err := k.Acquire(t.Context(), "n", alone, true)
			if !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "pool_mode = session") {
				t.Fatalf("%s: %v", mode, err)
			}
		}
	}
	if n := direct.count("SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database WHERE locktype = " +
		"'advisory' AND datname = current_database()"); n != 0 {
		t.Errorf("%d locks were taken", n)
	}
}

// A pooler that has a single connection to lend would let the first wait for the second.
func TestAPoolerOfOneConnectionIsRefused(t *testing.T) {
	s := &stage{T: t, db: dbtest.Empty(t, dbtest.KindPostgres).PgBouncer(t, dbtest.PoolTransactions,
		"default_pool_size = 1")}
	if _, _, err := s.client().Acquire(t.Context(), "n", alone, true); !errors.Is(err, driver.ErrConfig) {
		t.Error(err)
	}
}

// A pooler that lends its connections in turn shows by what becomes of the first connection alone.
func TestAPoolerThatGoesRoundIsRefused(t *testing.T) {
	s := stageOn(t, dbtest.Empty(t, dbtest.KindPostgres).PgBouncer(t, dbtest.PoolTransactions,
		"server_round_robin = 1"))
	pool := s.pool()
	var open [4]pgx.Tx // at a time, so that there are as many connections to lend
	for i := range open {
		open[i] = s.begun(pool, pgx.TxOptions{})
	}
	for _, tx := range open {
		s.commit(tx)
	}
	for range 5 {
		if _, _, err := s.client().Acquire(t.Context(), "n", alone, true); !errors.Is(err, driver.ErrConfig) {
			t.Fatal(err)
		}
	}
}

func TestAPoolerOfSessionsServes(t *testing.T) {
	db := dbtest.Empty(t, dbtest.KindPostgres)
	direct := stageOn(t, db)
	s := stageOn(t, db.PgBouncer(t, dbtest.PoolSessions))
	one, two := s.client(), direct.client()
	p := s.lock(one, "n", alone)
	if direct.free(two, "n", alone) {
		t.Error("it is taken")
	}
	gone := s.begin(one, "n", alone, 1)
	gone.cancel()
	<-gone.done
	s.waiting(0)
	waits := s.begin(one, "n", shared, 1)
	s.unlock(p)
	s.unlock(s.granted(waits))
}

func TestAdvisoryLocksOfTransactionsWorkThroughAPooler(t *testing.T) {
	db := dbtest.Empty(t, dbtest.KindPostgres)
	direct := stageOn(t, db)
	s := stageOn(t, db.PgBouncer(t, dbtest.PoolTransactions))
	pool := s.pool()
	other := direct.client()
	p := direct.lock(other, "n", alone)
	tx := s.begun(pool, pgx.TxOptions{})
	for range 5 {
		gone := s.beginTx(tx, "n", alone, 1)
		gone.cancel()
		<-gone.done
		assert.ErrorIs(t, gone.err, context.Canceled)
		s.usable(tx)
	}
	waits := s.beginTx(tx, "n", alone, 1)
	direct.unlock(p)
	s.granted(waits)
	if direct.free(other, "n", shared) {
		t.Error("the transaction has it")
	}
	s.commit(tx)
	if !direct.free(other, "n", alone) {
		t.Error("it stayed with the pooler's connection")
	}
}
