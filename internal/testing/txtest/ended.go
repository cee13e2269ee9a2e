package txtest

import (
	"testing"

	"github.com/dblock-go/dblock/migrate"
)

// EachEnded runs f for each way in which a server ends a transaction, or makes it fail, that the
// driver knows nothing of. Each call of end begins a transaction and returns it ended.
func (w World) EachEnded(t *testing.T, f func(t *testing.T, end func() *Tx)) {
	t.Helper()
	ways := map[string]bool{"ROLLBACK": true, "COMMIT": true} // true: the statement succeeds
	switch w.Engine {
	case migrate.Postgres:
		ways["SELECT 1 / 0"] = false
	case migrate.MySQL:
		ways["CREATE TABLE IF NOT EXISTS implicit_commit (n int)"] = true
	case migrate.SQLite:
		ways["INSERT OR ROLLBACK INTO app_rows (rowid, n) VALUES (7, 1), (7, 2)"] = false
	}
	for way, succeeds := range ways {
		t.Run(way, func(t *testing.T) {
			f(t, func() *Tx {
				x := w.Begin(t)
				x.GoesOn()
				if err := x.exec(t.Context(), way); (err == nil) != succeeds {
					t.Fatal(err)
				}
				return x
			})
		})
	}
}
