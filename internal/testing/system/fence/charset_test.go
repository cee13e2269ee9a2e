package fence

import (
	"testing"

	"github.com/dblock-go/dblock/internal/testing/txtest"
	"github.com/dblock-go/dblock/migrate"
)

// A resource is the same row whatever character set the application's connection has.
func TestNoCharacterSetTouchesAResource(t *testing.T) {
	t.Parallel()
	txtest.EachConversion(t, migrate.Fences, func(t *testing.T, usual, odd txtest.World, resource string) {
		seen(t, odd, resource, 50)
		seen(t, usual, resource, 100)
		tx := odd.Begin(t)
		isStale(t, check(t, tx, resource, 50), resource, 50, 100)
		passes(t, tx, resource, 100)
		tx.Rollback()
	})
}
