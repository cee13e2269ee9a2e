package inspect

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/dblock-go/dblock"
)

// Watch yields a name as Lock shows it, first as it is, and then whenever the name has changed or
// Record was called for it, until ctx ends: the last value has the error of ctx.
//
// Record and Break wake Watch, and so does the end of the holder's time. For other changes it reads
// the name a few times in each TTL; a client that polls reads it ten times a second. Of several
// changes in quick succession it may show the last only. It repeats an unchanged name a few times
// in each TTL, since a wake-up can be lost: to miss no event, read Events for each value.
func (i *Inspector) Watch(ctx context.Context, name string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		var last string
		var shown time.Time
		err := i.client.Watch(ctx, name, func(hinted bool) (more bool, err error) {
			info, err := i.Lock(ctx, name)
			if err != nil {
				return false, err
			}
			if now := fingerprint(info); hinted || now != last || time.Since(shown) > i.client.TTL()/4 {
				last, shown = now, time.Now()
				return yield(info, nil), nil
			}
			return true, nil
		})
		if err != nil {
			yield(Info{}, &dblock.LockError{Op: "watch", Name: name, Err: err})
		}
	}
}

// fingerprint returns equal texts for values that differ only in the time that is left.
func fingerprint(i Info) string {
	text := fmt.Sprint(i.Token, i.Capacity)
	for _, participant := range append(i.Holders, i.Waiters...) {
		participant.Until = time.Time{}
		text += fmt.Sprint(participant)
	}
	return text
}
