package postgres

import (
	"fmt"
	"testing"

	"github.com/dblock-go/dblock/internal/dbtest"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/oracle"
)

// Whatever is asked, by the short ways and by the general way, the engine leaves the rows that
// package protocol leaves in memory.
func TestTheEngineDoesWhatTheProtocolDoes(t *testing.T) {
	db := dbtest.Postgres(t)
	for name, backend := range map[string]driver.Backend{
		"pgx": New(db.Pool(t)).Backend,
		"sql": NewSQL(db.SQL(t)).Backend,
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(3) {
				t.Run(fmt.Sprint(seed), func(t *testing.T) { oracle.Compare(t, backend, seed, 200) })
			}
		})
	}
}
