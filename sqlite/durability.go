package sqlite

import (
	"context"
	"errors"
	"time"
)

// durability is what a commit waits for.
type durability int

const (
	// asSet is what the application has set. With synchronous=FULL each commit waits for the disk.
	asSet durability = iota
	// relaxed is synchronous=NORMAL in place of FULL, in WAL mode alone. The file stays whole. A
	// crash of the machine can lose the last commits, all of them from one on.
	relaxed
)

// full is PRAGMA synchronous=FULL. In WAL mode EXTRA does the same, and stays: it is how an
// application says that it wants every commit on the disk.
const full = 2

// tick is how far the database's clock steps.
const tick = time.Millisecond

var errLasting = errors.New("this transaction must outlive the machine")

// relaxes reports whether a transaction that may be lost with the machine, and so with all holders,
// can be committed without a wait for the disk. Where it turns out that what it did must last, it
// is undone and done anew with a commit that waits as the application has set it.
func (d *database) relaxes(ctx context.Context) bool { return d.main.Load() && d.ownCaches(ctx) }

// keep has the commit wait for the disk where a grant must not be lost with the machine.
func (w *writer) keep(token, now int64, rest time.Duration) {
	w.lasting = w.lasting || mustLast(token, now, rest)
}

// mustLast reports whether a grant must not be lost with the machine. One with a rest is to be kept
// by those who come after. A token that the clock has not reached, which was raised or is from
// before the clock was set back, would be granted again; all others are below the clock that the
// machine starts with.
func mustLast(token, now int64, rest time.Duration) bool {
	return rest > 0 || token >= now+tick.Microseconds()
}
