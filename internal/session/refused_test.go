package session

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/assert"
)

// unlisted is a server that answers heartbeats and no list.
type unlisted struct {
	*server
	because error
}

func (u *unlisted) Upkeep(ctx context.Context, session string) (driver.Upkeep, error) {
	_, err := u.server.Upkeep(ctx, session)
	return u, err
}

func (u *unlisted) Claims(ctx context.Context, session string, known []driver.Claim) ([]driver.Claim, error) {
	_, _ = u.server.Claims(ctx, session, known)
	return nil, u.because
}

// Broken by a new connection for each list that fails, and by heartbeats that succeed meanwhile.
func TestAListThatFailsForGoodIsTriedAtASlowPace(t *testing.T) {
	for _, because := range []error{driver.Refused(errors.New("permission denied")),
		errors.New("the connection broke")} {
		synctest.Test(t, func(t *testing.T) {
			u := &unlisted{&server{delay: 10 * time.Millisecond}, because}
			session, _ := startOn(t, u, u.server)
			time.Sleep(100 * ttl)
			assert.NoError(t, context.Cause(session.Context()), "the session has ended")
			seen := u.seen()
			if seen.lists > 60 || seen.lists < 10 {
				t.Errorf("%d lists in 100 TTLs", seen.lists)
			}
			if most := seen.lists + 1; seen.connects > most || driver.InDoubt(because) != (seen.connects > 1) {
				t.Errorf("%d connects in 100 TTLs, after %d lists that fail with %q", seen.connects, seen.lists,
					because)
			}
			if seen.beats > 600 {
				t.Errorf("%d heartbeats in 100 TTLs", seen.beats)
			}
		})
	}
}
