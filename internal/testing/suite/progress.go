package suite

import (
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
)

// Broken by a lock that stays with its holder, or goes while a transaction is guarded by it.
func stalled(t *testing.T, e *env) {
	a, c := e.appClient(t, 5)
	e.exec(t, "CREATE TABLE app (n integer)")
	l := lock(t, c, "n", dblock.Progress(minProgress))
	tx := beginTx(t, a, e.levels()[0])
	if err := c.Guard(t.Context(), tx, l); err != nil && !errors.Is(err, dblock.ErrLost) { // this may take longer
		t.Fatal(err)
	}
	ended(t, soon, l, dblock.ErrStalled)
	waiting := locking(t.Context(), c, "n")
	e.commitOne(t, tx)
	unlock(t, granted(t, soon, waiting))
	is(t, l.Unlock(t.Context()), dblock.ErrLost, dblock.ErrStalled)
}

const minProgress = 100 * time.Millisecond
