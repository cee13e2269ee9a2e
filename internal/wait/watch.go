package wait

import "github.com/dblock-go/dblock/driver"

// Watch registers somebody who wants to hear of a name without waiting for it: news is sent to whenever something was
// heard of it, or seen to have changed; several may be one.
func (h *Hub) Watch(name, watch string) (w *Waiter, news <-chan struct{}) {
	w = h.Add(name, watch)
	h.mu.Lock()
	defer h.mu.Unlock()
	w.news = make(chan struct{}, 1)
	h.expect(w)
	return w, w.news
}

// tell wakes a watcher; of others it does nothing.
func (w *Waiter) tell() {
	if w == nil || w.news == nil {
		return
	}
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// same reports whether a watcher would find the same holder, or as many.
func same(a, b driver.State) bool {
	return a.Holder.Session == b.Holder.Session && a.Holder.Grant.Token == b.Holder.Grant.Token &&
		a.Sharing == b.Sharing && a.Waiters == b.Waiters
}
