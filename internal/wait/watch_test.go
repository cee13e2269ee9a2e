package wait

import (
	"testing"
	"testing/synctest"
	"time"
)

// Broken by a look instead of a hint: an event that was recorded meanwhile leaves the name as it
// was.
func TestAWatcherIsToldThatHintsMayHaveBeenMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &table{}
		h := room(t, f)
		f.queue("n", time.Hour, "a1")
		w := h.Watch("n", "watch")
		for _, when := range []string{"the first listener", "the next one"} {
			time.Sleep(relistenMax)
			if !h.Listening() || !w.Hinted() || w.Hinted() {
				t.Errorf("%s is ready, and the watcher does not know", when)
			}
			f.set(func() { close(f.broken); f.broken = make(chan struct{}) })
			synctest.Wait()
		}
	})
}
