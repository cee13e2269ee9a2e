package fence

import (
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/dbtest"
	"github.com/dblock-go/dblock/internal/txtest"
	"github.com/dblock-go/dblock/migrate"
)

// A resource is the same row whatever character sets the application's connection has.
func TestNoCharacterSetTouchesAResource(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{dbtest.KindMySQL, dbtest.KindMariaDB} {
		t.Run(kind, func(t *testing.T) {
			db := dbtest.Empty(t, kind)
			w := txtest.New(t, db, migrate.Fences)
			txtest.EachCharset(t, func(t *testing.T, params string) {
				odd := w
				odd.DSN, _, _ = strings.Cut(db.DSN, "?")
				odd.DSN += "?" + params
				odd.DB = odd.SQL(t)
				for _, resource := range []string{"plain " + params, "über " + params, "日😀 " + params} {
					seen(t, odd, resource, 50)
					seen(t, w, resource, 100)
					tx := odd.Begin(t)
					isStale(t, check(t, tx, resource, 50), resource, 50, 100)
					passes(t, tx, resource, 100)
					tx.Rollback()
				}
			})
		})
	}
}
