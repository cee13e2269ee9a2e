package inspect

import (
	"context"
	"iter"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/page"
)

// Filter selects names. The zero value selects all names that have a holder or a waiter.
type Filter struct {
	Prefix string        // of the name, byte for byte
	Host   string        // of a holder
	Older  time.Duration // a holder has held it for at least this long
	Idle   bool          // also names without holders and waiters, until the reaper removes them

	Contended bool   // only names with waiters that are no candidates of an election
	After     string // only names above this one, byte for byte: the last name of a page selects the next page
	Limit     uint   // at most so many names; 0: all
}

// List shows many names as Lock does, in the order of their bytes, a page at a time: each as it was
// when its page was read. It reads the first 10 places of each queue; Info.Queued counts all. On
// MySQL and MariaDB the places of a longer queue are read a moment after the holders. The iteration
// ends after the first error. To continue later, set Filter.After to the last name that was seen.
func (i *Inspector) List(ctx context.Context, f Filter) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		want := driver.Filter{
			Prefix: f.Prefix, Host: f.Host, Older: f.Older, Idle: f.Idle, Contended: f.Contended, After: f.After,
		}
		page.Each(f.Limit, yield, func(size int) (infos []Info, more bool, err error) {
			var names []string
			err = i.read(ctx, "list", f.Prefix, func(ctx context.Context, engine driver.Backend) (err error) {
				names, err = engine.Names(ctx, want, size)
				return err
			})
			if err != nil || len(names) == 0 {
				return nil, false, err
			}
			want.After = names[len(names)-1]
			infos, err = i.describe(ctx, "list", names, firstWaiters)
			return infos, len(names) == size, err
		})
	}
}
