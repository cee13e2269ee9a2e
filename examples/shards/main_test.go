package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

// run itself fails unless the servers exclude each other.
func TestServersMeetInTheDatabaseOfAName(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db dbtest.Database) {
		dsns := []string{db.DSN, dbtest.Empty(t, db.Kind).DSN, dbtest.Empty(t, db.Kind).DSN}
		if db.Kind == dbtest.KindSQLite {
			dsns = []string{"", "", ""}
		}
		var out strings.Builder
		require.NoError(t, run(t.Context(), dsns, &out))
		if !strings.Contains(out.String(), "The other server sees the leader") {
			t.Error(out.String())
		}
	})
}

// A database that is added takes names from all others, and moves none between those.
func TestNamesMoveOnlyToTheNewDatabase(t *testing.T) {
	before, after := make(shards, 3), make(shards, 4)
	moved, names := 0, make([]int, len(before))
	for i := range customers {
		name := fmt.Sprintf("customer %d/invoices", i)
		from, to := before.number(name), after.number(name)
		names[from]++
		if from != to {
			if from != to && to != 3 {
				t.Errorf("%q moves from database %d to %d", name, from, to)
			}
			moved++
		}
	}
	if moved < customers/6 || moved > customers/3 {
		t.Errorf("%d names of %d have moved: want about a quarter", moved, customers)
	}
	for i, n := range names {
		if n < customers/4 || n > customers/2 {
			t.Errorf("%d names of %d are in database %d: want about a third", n, customers, i)
		}
	}
}

func TestNamesOfOneGroupAreInOneDatabase(t *testing.T) {
	s := make(shards, 5)
	for i := range customers {
		customer := fmt.Sprintf("customer %d", i)
		assert.Equal(t, s.number(customer+"/payments"), s.number(customer+"/invoices"), customer)
	}
}
