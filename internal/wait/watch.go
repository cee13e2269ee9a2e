package wait

import "sync/atomic"

// Watcher is somebody who wants to hear of a name without waiting for it.
type Watcher struct {
	// News receives when there is reason to look at the name: something was heard of it, or it was
	// looked at for others or for want of news. What those looks saw is no measure of what the
	// watcher has seen.
	News <-chan struct{}

	news    chan struct{}
	hinted  atomic.Bool
	waiting *Waiter
}

// Watch registers a watcher under an id of its own, which hints may name.
func (h *Hub) Watch(name, watch string) *Watcher {
	w := &Watcher{news: make(chan struct{}, 1), waiting: h.Add(name, watch)}
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

// Hinted reports whether something was heard since it was last asked: and not only looked at.
func (w *Watcher) Hinted() bool { return w.hinted.Swap(false) }

// tell wakes a watcher; of others it does nothing.
func (w *Waiter) tell(hinted bool) {
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
