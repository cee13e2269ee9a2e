package ledger

import "context"

// Enter lets one goroutine at a time acquire a name as the same owner, so that the second finds the
// hold of the first. leave MUST follow. Enter returns nil if ctx ends first, or at once where wait
// is false and another goroutine acquires the name.
func (l *Ledger) Enter(ctx context.Context, name string, o Owner, wait bool) (leave func()) {
	for {
		busy := l.enter(name, o)
		switch {
		case busy == nil:
			return func() { l.leave(name, o) }
		case !wait:
			return nil
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return nil
		}
	}
}

func (l *Ledger) enter(name string, o Owner) (busy <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.of(name)
	if busy := n.entering[o]; busy != nil {
		return busy
	}
	if n.entering == nil {
		n.entering = map[Owner]chan struct{}{}
	}
	n.entering[o] = make(chan struct{})
	return nil
}

func (l *Ledger) leave(name string, o Owner) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.of(name)
	close(n.entering[o])
	delete(n.entering, o)
	l.trim(name)
}
