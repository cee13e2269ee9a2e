package sqlite

import (
	"slices"
	"time"
)

// A listener without an inbox polls: every lookInterval while its session waits for anything, and
// sooner when it has just found a grant: a lock that goes to and fro does so at a higher rate. A
// session with no place in any queue can be granted nothing: its locks can only be lost to an owner
// that re-enters, or be asked for. Then the listener pauses longer, and less long where the session
// holds something. A name that it watches counts as one that it waits for.
const (
	lookInterval = 10 * time.Millisecond
	lookAgain    = time.Millisecond
	holdInterval = 100 * time.Millisecond
	restInterval = time.Second
)

// A listener with an inbox looks for what did not come.
const (
	// safetyInterval bounds the delay of a grant whose notice was lost: its sender was killed after
	// the commit, may not write to the inbox, or is of a build that sends none.
	safetyInterval = 5 * time.Second
	// fullDelay bounds the delay of a notice that found the inbox full of others.
	fullDelay = 100 * time.Millisecond
	// lateness is how long after its commit a notice may come.
	lateness = time.Second
	// distrust is how long a listener polls after it has found a grant without a notice.
	distrust = time.Minute
	// patienceRatio is how much of the time that a transaction of UnlockTx takes may pass until its
	// commit is seen: one part in so many.
	patienceRatio = 10
)

// pollSchedule says when a listener looks at the number of its grants.
type pollSchedule struct {
	tally
	inbox     bool
	last      time.Time // the end of the last look
	seen      snapshot  // what it showed
	pause     time.Duration
	letter    time.Time // the first that came since the last look began; zero: none
	announced time.Time // the first of those that are expected
	owed      time.Time // since when notices are owed; zero: none is
	polls     time.Time // until then it looks as if there were no inbox
}

func newPollSchedule(first snapshot, inbox bool, now time.Time) *pollSchedule {
	return &pollSchedule{tally: tally{heard: first.number}, inbox: inbox, last: now, seen: first, pause: lookInterval}
}

// due is when to look.
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

// opened notes a letter. Others may have found the inbox full.
func (l *pollSchedule) opened(now time.Time) {
	if l.letter.IsZero() {
		l.letter = now
	}
}

// expect notes that the nth grant may soon be committed, without another notice.
func (l *pollSchedule) expect(nth int64, now time.Time) {
	if len(l.expected) == 0 {
		l.announced = now
	}
	if nth > l.heard {
		l.expected = append(l.expected, nth)
	}
}

// woken notes that the session may wait for something now.
func (l *pollSchedule) woken() { l.seen.waiting = true }

// looks notes that a look begins.
func (l *pollSchedule) looks() { l.letter = time.Time{} }

// saw takes what a look has shown, and reports whether there was a grant without a notice.
func (l *pollSchedule) saw(s snapshot, now time.Time) (missed bool) {
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

// tally tells which grants were announced before they were seen in the database.
type tally struct {
	heard    int64   // every grant up to this one
	notified []int64 // and these
	expected []int64 // these may be committed without another notice
	owing    int     // how many were seen of which no notice has come
}

func (t *tally) notify(nth int64) {
	if nth > t.heard {
		t.notified = append(t.notified, nth)
	} else if t.owing > 0 {
		t.owing--
	}
}

// missed reports whether some of the first number grants were not announced, and takes them all as
// heard.
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
