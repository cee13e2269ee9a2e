package advisory

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// Broken by a wait that ends with the second loss of its connection, or with the first failure to
// open one.
func TestAWaitForAnAdvisoryLockSurvivesRestarts(t *testing.T) {
	if os.Getenv("DBLOCK_TEST_SOAK") == "" {
		t.Skip("scripts/soak runs it")
	}
	server := dbtest.OwnPostgres(t)
	s := stageOn(t, server.Empty(t))
	config, err := pgxpool.ParseConfig(s.db.DSN)
	require.NoError(t, err)
	tries := make(chan struct{}, 1000)
	config.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
		tries <- struct{}{}
		return nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	one, two := s.client(), s.open(pool)
	s.lock(one, "n", alone)
	waits := s.begin(two, "n", alone, 1)
	for range 3 {
		server.Kill()
		for len(tries) > 0 {
			<-tries
		}
		for range 3 { // the server is away for as long as that takes
			select {
			case <-tries:
			case <-waits.done:
				t.Fatalf("it does not wait any more: %v", waits.err)
			}
		}
		server.Start()
		if s.seen, err = pgx.Connect(t.Context(), s.db.DSN); err != nil {
			t.Fatal(err)
		}
		if err = s.outside.Ping(t.Context()); err != nil {
			s.outside.Reset()
		}
		p := s.granted(waits)
		s.unlock(p)
		s.lock(one, "n", alone)
		waits = s.begin(two, "n", alone, 1)
	}
	waits.cancel()
	<-waits.done
}
