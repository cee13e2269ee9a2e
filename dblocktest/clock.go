package dblocktest

import (
	"sync/atomic"
	"time"
)

// clock is the time of a database and of its clients.
type clock struct {
	began time.Time
	ahead atomic.Int64 // by how many nanoseconds Advance has moved it
	alarms
}

func newClock() *clock { return &clock{began: time.Now(), alarms: alarms{set: map[*alarm]bool{}}} }

// elapsed is the clock of the clients.
func (c *clock) elapsed() time.Duration {
	return time.Since(c.began) + time.Duration(c.ahead.Load())
}

// now is the clock of the database, in microseconds since 1970.
func (c *clock) now() int64 { return c.began.Add(c.elapsed()).UnixMicro() }

func timeOf(us int64) time.Time { return time.UnixMicro(us) }

// inBubble reports whether the clock is that of a bubble of testing/synctest, whose time begins
// with the year 2000.
func (c *clock) inBubble() bool { return c.began.Year() < 2020 }
