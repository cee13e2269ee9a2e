package dblock

import (
	"context"
	"fmt"

	"github.com/dblock-go/dblock/internal/client"
)

// Record writes an event of the application's own into the history of the name, if the lock is
// still held, and notifies all watchers of the name. kind: 1 to 32 ASCII letters; detail: at most
// 1,024 bytes of UTF-8. ErrLost if the lock is not held: then nothing is written. After any other
// error the event is not in the history, and the lock stays as it is.
func (l *Lock) Record(ctx context.Context, kind, detail string) error {
	core, err := l.valid()
	if err == nil {
		err = checkKind(kind)
	}
	if err == nil && detail != "" {
		err = checkDetail("detail", detail)
	}
	if err == nil {
		err = core.Record(ctx, kind, detail)
	}
	return fail("record", l.Name(), err)
}

func checkKind(kind string) error {
	if len(kind) < 1 || len(kind) > 32 {
		return fmt.Errorf("%w: the kind %q: want 1 to 32 ASCII letters", ErrInvalidOption, kind)
	}
	for _, r := range kind {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
			return fmt.Errorf("%w: the kind %q: want 1 to 32 ASCII letters", ErrInvalidOption, kind)
		}
	}
	return nil
}

// checkDetail refuses a text that some engine would not keep.
func checkDetail(what, text string) error {
	switch {
	case text == "" || len(text) > client.MaxReason:
		return fmt.Errorf("%w: the %s has %d bytes: want 1 to %d", ErrInvalidOption, what, len(text), client.MaxReason)
	case client.Clean(text, client.MaxReason) != text:
		return fmt.Errorf("%w: the %s %q is not UTF-8 without NUL", ErrInvalidOption, what, text)
	}
	return nil
}
