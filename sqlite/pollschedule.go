package sqlite

import (
	"slices"
	"time"
)

// A listener without an inbox polls: every lookInterval while its session waits, and sooner just
// after a grant, since a lock that alternates between sessions does so at a higher rate. A session
// without a place in any queue can be granted nothing. It can only lose a lock to an owner that
// re-enters, or be asked for one. Then the listener pauses for restInterval, or for holdInterval if
// the session holds a lock. A watched name counts as one that the session waits for.
const (
	lookInterval = 10 * time.Millisecond
	lookAgain    = time.Millisecond
	holdInterval = 100 * time.Millisecond
	restInterval = time.Second
)

// A listener with an inbox looks for grants whose notice did not come.
const (
	// safetyInterval bounds the delay of a grant whose notice was lost: its sender was killed after
	// the commit, may not write to the inbox, or is of a build that sends none.
	safetyInterval = 5 * time.Second
	// fullDelay bounds the delay of a grant whose notice found the inbox full.
	fullDelay = 100 * time.Millisecond
	// lateness bounds the time between a commit and its notice.
	lateness = time.Second
	// distrust is the time for which a listener polls after it has found a grant without a notice.
	distrust = time.Minute
	// patienceRatio bounds the delay until a commit of UnlockTx is seen: one part in patienceRatio
	// of the time since its announcement.
	patienceRatio = 10
)

// pollSchedule says when a listener next reads the number of its session's grants.
type pollSchedule struct {
	tally
	inbox     bool
	last      time.Time // the end of the last look
	seen      sighting  // the result of the last look
	pause     time.Duration
	letter    time.Time // the first notice since the last look began; zero: none
	announced time.Time // the first of the expected grants
	owed      time.Time // the time since which notices are owed; zero: none is
	polls     time.Time // until then the listener polls as if it had no inbox
}

func newPollSchedule(first sighting, inbox bool, now time.Time) *pollSchedule {
	return &pollSchedule{tally: tally{heard: first.number}, inbox: inbox, last: now, seen: first, pause: lookInterval}
}

// due returns the time of the next look.
func (l *pollSchedule) due() time.Time {
	if !l.inbox || l.last.Before(l.polls) {
		switch {
		case l.pause < lookInterval, l.seen.waiting:
			return l.last.Add(l.pause)
		case l.seen.holding:
			return l.last.Add(holdInterval)
		}
		return l.last.Add(restInterval)
	}
	due := l.last.Add(safetyInterval)
	sooner := func(at time.Time) {
		if at.Before(due) {
			due = at
		}
	}
	if !l.letter.IsZero() {
		sooner(l.letter.Add(fullDelay))
	}
	if !l.owed.IsZero() {
		sooner(l.owed.Add(lateness))
	}
	if len(l.expected) > 0 {
		sooner(l.last.Add(max(lookInterval, l.last.Sub(l.announced)/patienceRatio)))
	}
	return due
}

// opened records that a notice came. Other notices may have found the inbox full.
func (l *pollSchedule) opened(now time.Time) {
	if l.letter.IsZero() {
		l.letter = now
	}
}

// expect records that the nth grant may soon be committed without another notice.
func (l *pollSchedule) expect(nth int64, now time.Time) {
	if len(l.expected) == 0 {
		l.announced = now
	}
	if nth > l.heard {
		l.expected = append(l.expected, nth)
	}
}

// woken records that the session may wait for a grant now.
func (l *pollSchedule) woken() { l.seen.waiting = true }

// looks records that a look begins.
func (l *pollSchedule) looks() { l.letter = time.Time{} }

// saw takes the result of a look, and reports whether it shows a grant without a notice.
func (l *pollSchedule) saw(s sighting, now time.Time) (missed bool) {
	l.pause = min(2*l.pause, lookInterval)
	if s.number != l.heard {
		l.pause = lookAgain
	}
	missed = l.missed(s.number)
	l.seen, l.last = s, now
	switch {
	case l.owing == 0:
		l.owed = time.Time{}
	case l.owed.IsZero():
		l.owed = now
	case now.Sub(l.owed) >= lateness:
		l.owing, l.owed, l.polls = 0, time.Time{}, now.Add(distrust)
	}
	return missed
}

// tally tells which grants were announced before the database showed them.
type tally struct {
	heard    int64   // every grant up to this one was announced
	notified []int64 // further announced grants
	expected []int64 // these may be committed without another notice
	owing    int     // the number of grants seen whose notice has not come
}

func (t *tally) notify(nth int64) {
	if nth > t.heard {
		t.notified = append(t.notified, nth)
	} else if t.owing > 0 {
		t.owing--
	}
}

// missed reports whether some of the first number grants were not announced, and counts all of them
// as heard.
func (t *tally) missed(number int64) bool {
	news := int(number - t.heard)
	within := func(nth int64) bool { return nth <= number }
	before := len(t.notified)
	t.notified = slices.DeleteFunc(t.notified, within)
	news -= before - len(t.notified)
	before = len(t.expected)
	t.expected = slices.DeleteFunc(t.expected, within)
	t.owing = max(0, t.owing+news-(before-len(t.expected)))
	t.heard = number
	return news != 0
}
