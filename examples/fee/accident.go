package main

import (
	"context"
	"fmt"
	"time"
)

// accident is what happens to server 1 while it is inside the critical section.
type accident int

const (
	none    accident = iota
	crashed          // SIGKILL
	paused           // SIGSTOP, and SIGCONT when another server has the lock and has written
)

func (a accident) String() string { return []string{"none", "crash", "pause"}[a] }

// scene is how the accident goes.
type scene struct {
	victim  *process
	token   int64     // of the victim
	struck  time.Time // when it was killed or stopped
	after   int64     // the successor's token
	resumed time.Time // when it was woken
	over    bool
}

// watch acts upon an event where the accident asks for it, and tells what happens.
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
		if r.accident == crashed {
			r.bars.say("server %d is in the critical section with token %d: killed with SIGKILL", e.from.number, e.Token)
			s.struck = time.Now()
			return e.from.kill()
		}
		r.bars.say("server %d is in the critical section with token %d: stopped with SIGSTOP", e.from.number, e.Token)
		s.struck = time.Now()
		return r.db.whileNobodyWrites(ctx, func() error { return suspend(e.from.cmd.Process) })

	case e.Kind == feeTaken && s.victim != nil && s.after == 0 && e.from != s.victim:
		if s.after = e.Token; s.after <= s.token {
			return fmt.Errorf("server %d took over with token %d, which is not higher than %d", e.from.number, e.Token, s.token)
		}
		text := "server %d took over %s later (TTL %v), with the higher token %d"
		if r.accident == crashed {
			s.over = true
			r.bars.say(text, e.from.number, milliseconds(e.At.Sub(s.struck)), r.ttl, e.Token)
			return nil
		}
		r.bars.say(text+", and wrote", e.from.number, milliseconds(e.At.Sub(s.struck)), r.ttl, e.Token)
		r.bars.say("server %d is woken with SIGCONT", s.victim.number)
		s.resumed = time.Now()
		return resume(s.victim.cmd.Process)

	case e.Kind == isWoken:
		r.bars.say("server %d was told %s later: %s", e.from.number, milliseconds(e.At.Sub(s.resumed)), e.Text)
		if !e.Lost || !e.Refused {
			return fmt.Errorf("server %d wrote with token %d after token %d had been there, and was not refused", e.from.number, s.token, s.after)
		}
		r.bars.say("server %d wrote all the same, as a bad program would: refused, 0 rows updated, since the account has seen a higher token", e.from.number)
		s.over = true
	}
	return nil
}

// milliseconds writes a duration as a person wants to read it.
func milliseconds(d time.Duration) string {
	if d >= 10*time.Millisecond {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(10 * time.Microsecond).String()
}
