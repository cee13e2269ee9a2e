package dblocktest

import (
	"time"

	"github.com/dblock-go/dblock/internal/clock"
)

// times is the time of a database and of its clients.
type times struct{ *clock.Movable }

// now is the clock of the database, in microseconds since 1970.
func (t times) now() int64 { return t.Began().Add(t.Now()).UnixMicro() }

func timeOf(us int64) time.Time { return time.UnixMicro(us) }

// inBubble reports whether the clock is that of a bubble of testing/synctest, whose time begins
// with the year 2000.
func (t times) inBubble() bool { return t.Began().Year() < 2020 }
