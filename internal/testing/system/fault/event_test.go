//go:build unix

package fault

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/session"
)

// What an event can be about.
const (
	evReady      = "ready"
	evAsked      = "asked"      // Lock or TryLock is about to be called
	evHeld       = "held"       // it returned a lock
	evRefused    = "refused"    // it returned an error
	evReheld     = "reheld"     // the same owner entered the lock again
	evConverting = "converting" // Downgrade or TryUpgrade is about to be called
	evConverted  = "converted"  // it returned
	evEnding     = "ending"     // Unlock is about to be called
	evUnlocked   = "unlocked"   // it returned
	evLost       = "lost"       // the context of a lock ended by itself
	evWrote      = "wrote"      // the fenced write returned
	evLeave      = "leave"      // a place in a queue is about to be given up by its own client
	evQueued     = "queued"     // a place in a queue, with its ticket
	evGranted    = "granted"    // the database says that an attempt has the lock
	evIdle       = "idle"       // no worker does anything any more
	evHogging    = "hogging"    // a write transaction is open
	evRan        = "ran"        // a job runs in its slot
	evAskedRun   = "asked run"  // whether it should run was asked and answered
	evWronged    = "wronged"    // a session was told that it is dead, and lives
	evOpened     = "opened"     // the database has a new session; At: before it was asked
	evBeat       = "beat"       // the database has answered a heartbeat; At: before it was sent
	evDone       = "done"
)

// event is a line that an actor writes.
type event struct {
	What    string
	Op      int           // the command that it answers; of a hold, the command that acquired it
	At      time.Duration // by the clock of the machine
	Name    string        `json:",omitempty"`
	Token   int64         `json:",omitempty"`
	Live    time.Duration `json:",omitempty"` // when the hold was last believed in for certain
	Rows    int64         `json:",omitempty"`
	From    time.Duration `json:",omitempty"` // when it was asked
	Attempt string        `json:",omitempty"`
	Session string        `json:",omitempty"`
	Ticket  int64         `json:",omitempty"`
	Err     string        `json:",omitempty"`
	Kinds   []string      `json:",omitempty"` // which of the errors below it is
	Portion portion       `json:",omitzero"`
}

func (e event) is(kind string) bool { return slices.Contains(e.Kinds, kind) }

// The errors that tests ask for.
const (
	kindLost        = "ErrLost"
	kindClosed      = "ErrClosed"
	kindUnavailable = "ErrUnavailable"
	kindNotAcquired = "ErrNotAcquired"
	kindNotHeld     = "ErrNotHeld"
	kindDeadlock    = "ErrDeadlock"
	kindCapacity    = "ErrCapacity"
	kindEnded       = "ended" // the context had ended before anything was asked
)

func kindsOf(err error) (kinds []string) {
	for kind, target := range map[string]error{
		kindLost: dblock.ErrLost, kindClosed: dblock.ErrClosed,
		kindUnavailable: dblock.ErrUnavailable, kindNotAcquired: dblock.ErrNotAcquired, kindNotHeld: dblock.ErrNotHeld,
		kindDeadlock: dblock.ErrDeadlock, kindCapacity: dblock.ErrCapacity,
	} {
		if errors.Is(err, target) {
			kinds = append(kinds, kind)
		}
	}
	var of *dblock.LockError
	if errors.As(err, &of) && (of.Err == context.DeadlineExceeded || of.Err == context.Canceled) {
		kinds = append(kinds, kindEnded)
	}
	return kinds
}

func (e event) with(err error) event {
	if err != nil {
		e.Err, e.Kinds = err.Error(), kindsOf(err)
	}
	return e
}

// reporter writes events. What it has written is in the pipe, and survives the process.
type reporter struct {
	mu  sync.Mutex // one line at a time
	out *json.Encoder
}

func newReporter(w io.Writer) *reporter { return &reporter{out: json.NewEncoder(w)} }

// report fills in the time where the event has none.
func (r *reporter) report(e event) {
	if e.At == 0 {
		e.At = session.Boottime()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.out.Encode(e) // a parent that has gone kills us anyway
}
