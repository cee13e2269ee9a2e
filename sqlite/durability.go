package sqlite

import (
	"context"
	"errors"
	"time"
)

// durability tells which crash a commit must survive.
type durability int

const (
	// asSet keeps the application's setting. With synchronous=FULL each commit waits for the disk.
	asSet durability = iota
	// relaxed is synchronous=NORMAL in place of FULL, in WAL mode only. The file stays intact. A
	// crash of the machine can lose the last commits, from one of them on.
	relaxed
)

// full is PRAGMA synchronous=FULL. EXTRA, which does the same in WAL mode, is never relaxed: with
// EXTRA an application asks for every commit on the disk.
const full = 2

// tick is the resolution of the database's clock.
const tick = time.Millisecond

var errLasting = errors.New("this transaction must outlive the machine")

// relaxes reports whether a transaction that may be lost together with the machine, and so with all
// holders, can be committed without waiting for the disk. If the transaction turns out to be
// lasting, it is rolled back and repeated with the application's setting.
func (d *database) relaxes(ctx context.Context) bool { return d.main.Load() && d.ownCaches(ctx) }

// keep marks the transaction as lasting if its grant must survive a crash of the machine.
func (w *writer) keep(token, now int64, rest time.Duration) {
	w.lasting = w.lasting || mustLast(token, now, rest)
}

// mustLast reports whether a grant must survive a crash of the machine. A grant with MinHold must:
// later requests respect its rest. So must a token that the clock has not reached, because it was
// raised or predates a clock that was set back: it would be granted again. All other tokens are
// below the clock with which the machine starts.
func mustLast(token, now int64, rest time.Duration) bool {
	return rest > 0 || token >= now+tick.Microseconds()
}
