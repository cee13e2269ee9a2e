package sqlite

import (
	"bytes"
	"strconv"
)

// notice is news for a session: its nth, about an attempt that was granted, or has lost its lock.
// It is a hint, which the session looks up. Without an attempt it is of a commit that is still to
// be made, if at all.
type notice struct {
	session string
	nth     int64
	attempt string
}

// text is a notice as a datagram, without the session, whose inbox it goes to.
func (n notice) text() []byte {
	return append(append(strconv.AppendInt(nil, n.nth, 10), ' '), n.attempt...)
}

// readNotice reads what may be anything. What is no notice is one of nothing.
func readNotice(text []byte) notice {
	number, attempt, _ := bytes.Cut(text, []byte(" "))
	nth, err := strconv.ParseInt(string(number), 10, 64)
	if err != nil {
		return notice{}
	}
	return notice{nth: nth, attempt: string(attempt)}
}

// deliver tells sessions what was committed: in this process by their notifiers, others by their
// inboxes. Where neither is there, or an inbox is full, the session finds it by looking.
func (e *engine) deliver(told []notice) {
	for _, n := range told {
		if !notify(n) {
			_ = post(e.db.path(), n)
		}
	}
}

// announce tells sessions what will have been done if a transaction of the application's commits,
// of which nobody here hears.
func (t transactions) announce(c changed) {
	for _, session := range c.joined {
		wake(session)
	}
	for _, n := range c.told {
		n.attempt = ""
		if !notify(n) {
			_ = post(t.db.path(), n)
		}
	}
}
