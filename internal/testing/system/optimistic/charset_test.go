package optimistic

import (
	"testing"

	"github.com/dblock-go/dblock/internal/testing/txtest"
	"github.com/dblock-go/dblock/migrate"
)

// A name is the same row whatever character set the application's connection has.
func TestNoCharacterSetTouchesAName(t *testing.T) {
	t.Parallel()
	txtest.EachConversion(t, migrate.Versions, func(t *testing.T, usual, odd txtest.World, name string) {
		commitBump(t, odd, name, 0)
		commitBump(t, usual, name, 1)
		tx := odd.Begin(t)
		reads(t, tx, name, 2)
		isConflict(t, bump(t, tx, name, 1), name, 1)
		bumps(t, tx, name, 2)
		tx.Rollback()
	})
}
