package sqlite

import "sync"

// bells are the listeners of this process, by session. A session's id is its own whatever the pool
// or the file, so that two clients of one process find each other however each of them opened the
// database.
var bells = struct {
	sync.Mutex
	of map[string]map[*bell]bool
}{of: map[string]map[*bell]bool{}}

// bell is a listener that can be rung. Its owner takes what was rung: a caller of ring must not run
// code of the listener's client, which may take the same mutexes as the caller's.
type bell struct {
	rung   chan struct{}
	told   []notice // guarded by bells
	queued chan struct{}
}

func hang(session string) *bell {
	b := &bell{rung: make(chan struct{}, 1), queued: make(chan struct{}, 1)}
	bells.Lock()
	defer bells.Unlock()
	if bells.of[session] == nil {
		bells.of[session] = map[*bell]bool{}
	}
	bells.of[session][b] = true
	return b
}

func (b *bell) unhang(session string) {
	bells.Lock()
	defer bells.Unlock()
	delete(bells.of[session], b)
	if len(bells.of[session]) == 0 {
		delete(bells.of, session)
	}
}

func (b *bell) take() []notice {
	bells.Lock()
	defer bells.Unlock()
	told := b.told
	b.told = nil
	return told
}

// ring gives a notice to the listeners of its session in this process, and reports whether there
// are any.
func ring(n notice) bool {
	bells.Lock()
	defer bells.Unlock()
	for b := range bells.of[n.session] {
		b.told = append(b.told, n)
		signal(b.rung)
	}
	return len(bells.of[n.session]) > 0
}

// rouse ends the rest of a session's listeners: it may wait for something now.
func rouse(session string) {
	bells.Lock()
	defer bells.Unlock()
	for b := range bells.of[session] {
		signal(b.queued)
	}
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
