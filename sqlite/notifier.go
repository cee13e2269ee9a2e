package sqlite

import "sync"

// notifiers are the listeners of this process, by session. A session's id is unique across pools
// and files, so two clients of one process find each other whichever way they opened the database.
var notifiers = struct {
	sync.Mutex
	of map[string]map[*notifier]bool
}{of: map[string]map[*notifier]bool{}}

// notifier is the mailbox of a listener. Its owner takes the notices: a caller of notify must not
// run code of the listener's client, which may lock the same mutexes as the caller.
type notifier struct {
	notified chan struct{}
	notices  []notice // guarded by notifiers
	waits    chan struct{}
}

func addNotifier(session string) *notifier {
	b := &notifier{notified: make(chan struct{}, 1), waits: make(chan struct{}, 1)}
	notifiers.Lock()
	defer notifiers.Unlock()
	if notifiers.of[session] == nil {
		notifiers.of[session] = map[*notifier]bool{}
	}
	notifiers.of[session][b] = true
	return b
}

func (b *notifier) remove(session string) {
	notifiers.Lock()
	defer notifiers.Unlock()
	delete(notifiers.of[session], b)
	if len(notifiers.of[session]) == 0 {
		delete(notifiers.of, session)
	}
}

func (b *notifier) take() []notice {
	notifiers.Lock()
	defer notifiers.Unlock()
	notices := b.notices
	b.notices = nil
	return notices
}

// notify gives a notice to the listeners of its session in this process, and reports whether there
// are any.
func notify(n notice) bool {
	notifiers.Lock()
	defer notifiers.Unlock()
	for b := range notifiers.of[n.session] {
		b.notices = append(b.notices, n)
		signal(b.notified)
	}
	return len(notifiers.of[n.session]) > 0
}

// wake ends the long pause of a session's listeners: the session may wait for a grant now.
func wake(session string) {
	notifiers.Lock()
	defer notifiers.Unlock()
	for b := range notifiers.of[session] {
		signal(b.waits)
	}
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
