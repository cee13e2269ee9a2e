package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// accident is the accident of server 1 while it is inside the critical section.
type accident int

const (
	none    accident = iota
	crashed          // SIGKILL
	paused           // SIGSTOP, and SIGCONT once another server has the lock and has written
)

func (a accident) String() string { return []string{"none", "crash", "pause"}[a] }

// scene records the course of the accident.
type scene struct {
	victim  *process
	token   int64     // of the victim
	struck  time.Time // the time when it was killed or stopped
	after   int64     // the successor's token
	resumed time.Time // the time when it was woken
	over    bool
}

// watch carries out the accident at the right event, and prints its effects.
func (r *phaseRun) watch(ctx context.Context, e event) error {
	s := &r.scene
	switch {
	case e.Kind == isInside:
		s.victim, s.token = e.from, e.Token
		for _, p := range r.processes {
			if p != e.from {
				p.signal()
			}
		}
		if s.struck = time.Now(); r.accident == crashed {
			r.bars.say("server %d is inside, with token %d: killed with SIGKILL", e.from.number, e.Token)
			return e.from.kill()
		}
		r.bars.say("server %d is inside, with token %d: stopped with SIGSTOP", e.from.number, e.Token)
		return r.db.WhileNobodyWrites(ctx, func() error { return suspend(e.from.cmd.Process) })

	// An earlier fee may be reported later: the servers' reports come in no common order.
	case e.Kind == feeTaken && s.victim != nil && s.after == 0 && e.from != s.victim && e.At.After(s.struck):
		if s.after = e.Token; s.after <= s.token {
			return fmt.Errorf("server %d took over with token %d, which is not higher than %d", e.from.number, e.Token,
				s.token)
		}
		r.bars.say("%s later%s server %d took over,", rounded(e.At.Sub(s.struck)), r.reason(), e.from.number)
		if r.accident == crashed {
			r.bars.say("  with the higher token %d", e.Token)
			s.over = true
			return nil
		}
		r.bars.say("  with the higher token %d, and wrote", e.Token)
		r.bars.say("server %d continues, by SIGCONT", s.victim.number)
		s.resumed = time.Now()
		return resume(s.victim.cmd.Process)

	case e.Kind == isWoken:
		r.bars.say("%s later its context has ended:", rounded(e.At.Sub(s.resumed)))
		r.bars.say("  %s", strings.TrimPrefix(e.Text, fmt.Sprintf("dblock: %q: ", lockName))) // it is clear which
		if !e.Refused {
			return fmt.Errorf("server %d wrote with token %d after token %d had been there, and was not refused",
				e.from.number, s.token, s.after)
		}
		r.bars.say("it writes all the same, as a bad program would: refused, 0 rows updated")
		s.over = true
	}
	return nil
}

// reason says why the lock was free, where its time alone has decided.
func (r *phaseRun) reason() string {
	if r.accident == crashed && !r.undetected {
		return ""
	}
	return fmt.Sprintf(" (TTL %v since its last heartbeat)", r.ttl)
}

// rounded formats a duration for people.
func rounded(d time.Duration) string {
	if d >= 10*time.Millisecond {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(10 * time.Microsecond).String()
}
