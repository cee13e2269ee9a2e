package history

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// lookBack limits the events of a name among which Breaker finds the one of Break: it is nearly the
// last one. A name of many events is not read as a whole.
const lookBack = 50

// TakenFrom returns the detail of a Broken event: the holder that lost the name, and the reason
// given to Break.
func TakenFrom(host, thread, reason string) string { return heldBy(host, thread) + reason }

func heldBy(host, thread string) string {
	return fmt.Sprintf("taken from %s thread %s: ", host, thread)
}

// Breaker returns who took a lock from its holder by Break, and why; nil if the latest events of
// the name do not tell. held has the name and the holder. tokens are those by which the database
// may have known the lock.
func (y *History) Breaker(ctx context.Context, held protocol.Event, tokens ...int64) error {
	var events []protocol.Event
	err := y.db.Call(ctx, func(ctx context.Context) (err error) {
		events, err = y.db.Engine.Events(ctx, driver.EventFilter{Name: held.Name, Newest: true}, lookBack)
		return err
	})
	if err != nil {
		return nil // the lock is lost all the same
	}
	for _, e := range events {
		if e.Kind == Broken && slices.Contains(tokens, e.Token) {
			return fmt.Errorf("broken by %s (process %s): %s", e.Host, e.Thread,
				strings.TrimPrefix(e.Detail, heldBy(held.Host, held.Thread)))
		}
	}
	return nil
}
