// Package slots decides whether a slot of a job is due, and what becomes of a run. It does no I/O:
// an engine reads the rows, and writes what was decided.
package slots

import (
	"errors"
	"math"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
)

// Row is a run as an engine reads it, in the order of its columns, with the time of the statement.
// Times are microseconds since 1970.
type Row struct {
	Name             string
	Slot             int64
	Token            int64
	SessionID        string
	Host             string
	Thread           string
	BeganAt          int64
	EndedAt          int64 // 0: it has not
	Failed           bool
	Detail           string
	Tries            int64
	SlotEnds         int64 // of a moment: the moment
	SessionExpiresAt int64 // 0: the session is dead
	NowUs            int64 // by the database's clock
}

// failed reports whether a run may be tried again: it said so, or its session is over before it
// said anything.
func (r Row) failed() bool { return r.Failed || r.EndedAt == 0 && r.SessionExpiresAt <= r.NowUs }

// due reports whether a run is to be tried again by now.
func (r Row) due(retry driver.Retry) bool {
	at, again := retry.At(r.Run())
	return again && at.UnixMicro() <= r.NowUs
}

// Run is the run as clients see it.
func (r Row) Run() driver.Run {
	run := driver.Run{
		Name: r.Name, Slot: r.Slot, Token: r.Token, Session: r.SessionID, Host: r.Host, Thread: r.Thread,
		Began:  time.UnixMicro(r.BeganAt),
		Failed: r.failed(), Detail: r.Detail, Tries: int(r.Tries), SlotEnds: time.UnixMicro(r.SlotEnds),
		Seen: time.UnixMicro(r.NowUs),
	}
	if r.EndedAt != 0 {
		run.Ended = time.UnixMicro(r.EndedAt)
	}
	return run
}

// List is the runs of rows, in their order. R is what sqlc makes of them.
func List[R ~struct {
	Name             string
	Slot             int64
	Token            int64
	SessionID        string
	Host             string
	Thread           string
	BeganAt          int64
	EndedAt          int64
	Failed           bool
	Detail           string
	Tries            int64
	SlotEnds         int64
	SessionExpiresAt int64
	NowUs            int64
}](rows []R) (runs []driver.Run) {
	for _, r := range rows {
		runs = append(runs, Row(r).Run())
	}
	return runs
}

// Before is the bound of Runs: the runs that it means began before.
func Before(t time.Time) int64 {
	if t.IsZero() {
		return math.MaxInt64
	}
	return t.UnixMicro()
}

// About says which runs of a name Begin decides by: that with the number, that of the latest moment
// above Later, and of those that began from Begins on and below Below, and whose slot ends after
// Begins, all that have not ended and one other, with Retry one that has not failed. Others do no
// harm.
type About struct {
	Name                         string
	Number, Later, Begins, Below int64
	Retry                        bool
}

// Tables are the runs of a database.
type Tables interface {
	// Clock reads the database's clock.
	Clock() (now int64, err error)

	// About reads runs, in one statement.
	About(a About) ([]Row, error)

	// Claim writes a run that takes the place of that with the token over (0: of none). It looks
	// again at the row that it locks: the token must be that one, and a run of the same slot have
	// failed or not ended. It returns false where that is not so.
	Claim(r Row, over int64) (bool, error)
}

// claims is how often a claim may come too late.
const claims = 100

var errClaims = driver.Fail(driver.ErrRetry, errors.New("the slot was claimed again and again while it was read"))

// Begin is driver.Jobs.BeginRun. Where the claim comes too late, it reads everything anew.
func Begin(t Tables, run driver.Run, slot driver.Slot, retry driver.Retry) (driver.Run, bool, error) {
	for range claims {
		now, err := t.Clock()
		if err != nil {
			return driver.Run{}, false, err
		}
		slot, ok := slot.On(now)
		if !ok || slot.Early(time.UnixMicro(now)) {
			return driver.Run{Seen: time.UnixMicro(now)}, false, nil
		}
		number, begins, ends := slot.At(now)
		due := Row{
			Name: run.Name, Slot: number, Token: run.Token, SessionID: run.Session, Host: run.Host, Thread: run.Thread,
			BeganAt: now, Tries: 1, SlotEnds: ends, SessionExpiresAt: math.MaxInt64, NowUs: now,
		}
		a := About{run.Name, number, math.MaxInt64, begins, ends, retry.Most > 0}
		if slot.Length == 0 {
			a.Later, a.Below = number, math.MaxInt64
		}
		rows, err := t.About(a)
		if err != nil {
			return driver.Run{}, false, err
		}
		is, over, free := decide(a, due, rows, retry)
		if !free {
			return is.Run(), is.Token == run.Token && is.EndedAt == 0, nil
		}
		if claimed, err := t.Claim(is, over); claimed || err != nil {
			return is.Run(), claimed, err
		}
	}
	return driver.Run{}, false, errClaims
}

// decide returns the run as which the slot counts, or, where it is free, the one that is due and
// the token of the run whose place that takes. A run with the same number and another end is one of
// another interval.
func decide(a About, due Row, rows []Row, retry driver.Retry) (is Row, over int64, free bool) {
	again := false // the slot has failed, and is due again
	for _, r := range rows {
		if r.Slot != a.Number {
			continue
		}
		if over = r.Token; r.SlotEnds != due.SlotEnds {
			continue
		}
		if r.Token == due.Token || !r.due(retry) {
			return r, 0, false
		}
		again, due.Tries = true, r.Tries+1
	}
	for _, r := range rows { // a later moment counts, whatever became of it
		if r.Slot > a.Later && r.SlotEnds == r.Slot {
			return r, 0, false
		}
	}
	interval := a.Later == math.MaxInt64
	for _, r := range rows {
		within := r.SlotEnds > a.Begins && r.BeganAt >= a.Begins && r.BeganAt < a.Below
		if within && !(again && interval) && !(a.Retry && r.failed()) {
			return r, 0, false
		}
	}
	return due, over, true
}

// noMore is how long after a run the next one is not due where there are no more slots.
const noMore = 366 * 24 * time.Hour

// Next returns how long after a run was seen its slot, or the next one, may be due: more than 0.
func Next(run driver.Run, slot driver.Slot, retry driver.Retry) time.Duration {
	next := slot.Next(run.Seen.UnixMicro())
	if next.IsZero() {
		next = run.Seen.Add(noMore)
	}
	if at, again := retry.At(run); again && at.Before(next) {
		next = at
	}
	return max(next.Sub(run.Seen), time.Microsecond)
}

// LeftOut counts the slots between a run and the one before it: those that began while that one
// went on, and those that nobody asked for.
func LeftOut(before, run driver.Run, length time.Duration) (skipped, missed int64) {
	all := max(int64(run.SlotEnds.Add(-length).Sub(before.SlotEnds)/length), 0)
	skipped = max(int64((before.Ended.Sub(before.SlotEnds)+length-1)/length), 0)
	return min(skipped, all), all - min(skipped, all)
}
