package sqlite

import (
	"bytes"
	"strconv"
)

// notice is news for a session: its nth, about an attempt that was granted or has lost its lock. It
// is a hint, and the session reads the database for the facts. A notice without an attempt
// announces a commit that may still follow.
type notice struct {
	session string
	nth     int64
	attempt string
}

// text is a notice as a datagram. The session is left out: the inbox implies it.
func (n notice) text() []byte {
	return append(append(strconv.AppendInt(nil, n.nth, 10), ' '), n.attempt...)
}

// readNotice reads a datagram, which may contain anything. An invalid one becomes the zero notice.
func readNotice(text []byte) notice {
	number, attempt, _ := bytes.Cut(text, []byte(" "))
	nth, err := strconv.ParseInt(string(number), 10, 64)
	if err != nil {
		return notice{}
	}
	return notice{nth: nth, attempt: string(attempt)}
}

// deliver sends committed notices: in this process through notifiers, to other processes through
// inboxes. If neither exists, or the inbox is full, the session finds its grant by polling.
func (e *engine) deliver(notices []notice) {
	for _, n := range notices {
		if !notify(n) {
			_ = post(e.db.path(), n)
		}
	}
}

// announce tells sessions of grants that take effect if the application's transaction commits. This
// process does not learn of that commit.
func (t inTx) announce(c changed) {
	for _, session := range c.joined {
		wake(session)
	}
	for _, n := range c.notices {
		n.attempt = ""
		if !notify(n) {
			_ = post(t.db.path(), n)
		}
	}
}
