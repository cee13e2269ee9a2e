package quorum

import (
	"fmt"
	"time"
)

// note writes down what happened. MUST be called with mu locked.
func (w *world) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%10v ", time.Since(w.began).Round(time.Millisecond))+fmt.Sprintf(format,
		args...))
}

func (w *world) tell(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note(format, args...)
}

// fault writes down a violation. MUST be called with mu locked.
func (w *world) fault(format string, args ...any) {
	w.note("FAULT "+format, args...)
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}
