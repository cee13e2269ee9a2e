package wait

import "sync/atomic"

// Watcher receives news of a name without waiting for the lock.
type Watcher struct {
	// News receives when the watcher should read the name: a hint came, or the hub read the name
	// for a waiter or without a hint. The watcher reads the name itself, because the hub does not
	// know which state it has seen.
	News <-chan struct{}

	news    chan struct{}
	hinted  atomic.Bool
	waiting *Waiter
}

// Watch registers a watcher under an id of its own. Hints may name the id.
func (h *Hub) Watch(name, watch string) *Watcher {
	w := &Watcher{news: make(chan struct{}, 1), waiting: h.Add(name, watch, nil)}
	w.News = w.news
	h.mu.Lock()
	defer h.mu.Unlock()
	w.waiting.watcher = w
	h.watchers++
	h.expect(w.waiting)
	return w
}

// Unwatch forgets a watcher.
func (h *Hub) Unwatch(w *Watcher) { h.Remove(w.waiting) }

// Hinted reports whether a hint came since the last call.
func (w *Watcher) Hinted() bool { return w.hinted.Swap(false) }

// notify wakes a watcher. It does nothing for other waiters.
func (w *Waiter) notify(hinted bool) {
	if w == nil || w.watcher == nil {
		return
	}
	if hinted {
		w.watcher.hinted.Store(true)
	}
	select {
	case w.watcher.news <- struct{}{}:
	default:
	}
}
