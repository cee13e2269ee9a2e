// Package slots decides whether a slot of a job is due, and which run has taken it. It does no I/O:
// an engine reads the rows, and writes the decision.
package slots

import (
	"errors"
	"math"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
)

// Row is a run as an engine reads it, with its columns in their order and the statement's time.
// Times are microseconds since 1970.
type Row struct {
	Name             string
	Slot             int64
	Token            int64
	SessionID        string
	Host             string
	Thread           string
	BeganAt          int64
	EndedAt          int64 // 0: the run has not ended
	Failed           bool
	Detail           string
	Tries            int64
	SlotEnds         int64 // of a moment: the moment
	SessionExpiresAt int64 // 0: the session is dead
	NowUs            int64 // by the database's clock
}

// failed reports whether a run may be retried: it has reported a failure, or its session ended
// before the run did.
func (r Row) failed() bool { return r.Failed || r.EndedAt == 0 && r.SessionExpiresAt <= r.NowUs }

// due reports whether a run may be retried now.
func (r Row) due(retry driver.Retry) bool {
	at, again := retry.At(r.Run())
	return again && at.UnixMicro() <= r.NowUs
}

// Run returns the run as the driver's type.
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

// List returns the runs of rows, in their order. R is sqlc's type of a row.
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

// Before returns the bound of Runs in microseconds: it selects the runs that began before t.
func Before(t time.Time) int64 {
	if t.IsZero() {
		return math.MaxInt64
	}
	return t.UnixMicro()
}

// About selects the runs of a name by which Begin decides:
//
//   - the run with the number;
//   - the run of the latest moment above Later;
//   - of the runs that began in [Begins, Below), and whose slot ends after Begins: every unfinished
//     run, and one finished run (with Retry: one that succeeded).
//
// About may select other runs too: Begin ignores them.
type About struct {
	Name                         string
	Number, Later, Begins, Below int64
	Retry                        bool
}

// Tables has the runs of a database.
type Tables interface {
	// Clock reads the database's clock.
	Clock() (now int64, err error)

	// About reads the runs that a selects, in one statement.
	About(a About) ([]Row, error)

	// Claim writes a run in place of the one with the token over (0: none). It reads the locked row
	// again, and returns false if the token is not over, or if the run of the same slot has
	// succeeded.
	Claim(r Row, over int64) (bool, error)
}

// claims limits how often Begin starts anew after a claim that came too late.
const claims = 100

var errClaims = driver.Fail(driver.ErrRetry, errors.New("the slot was claimed again and again while it was read"))

// Begin is driver.Jobs.BeginRun. If the claim comes too late, Begin reads everything anew.
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

// decide returns the run that has taken the slot. If the slot is free, decide returns the run that
// is due, and the token of the run that it replaces. A run with the same number and another end
// belongs to another interval.
func decide(a About, due Row, rows []Row, retry driver.Retry) (is Row, over int64, free bool) {
	again := false // the slot has failed, and a retry is due
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
	for _, r := range rows { // a later moment counts, failed or not
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

// noMore is the time to the next run if the schedule has no more slots.
const noMore = 366 * 24 * time.Hour

// Next returns how long after run.Seen its slot (by a retry) or the next one is due: more than 0.
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

// LeftOut counts the slots between two runs: skipped began while the earlier run lasted, missed
// were asked for by no client.
func LeftOut(before, run driver.Run, length time.Duration) (skipped, missed int64) {
	all := max(int64(run.SlotEnds.Add(-length).Sub(before.SlotEnds)/length), 0)
	skipped = max(int64((before.Ended.Sub(before.SlotEnds)+length-1)/length), 0)
	return min(skipped, all), all - min(skipped, all)
}
