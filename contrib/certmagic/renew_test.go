package certmagiclock_test

import (
	"context"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/dblock-go/dblock"
	certmagiclock "github.com/dblock-go/dblock/contrib/certmagic"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// meddler is a Locker that keeps what Lock returned, and does something else after each TryLock.
type meddler struct {
	dblock.Locker
	first *dblock.Handle
	then  func()
}

func (m meddler) Lock(ctx context.Context, name string, options ...dblock.LockOption) (h dblock.Handle, err error) {
	h, err = m.Locker.Lock(ctx, name, options...)
	*m.first = h
	return h, err
}

func (m meddler) TryLock(ctx context.Context, name string, options ...dblock.LockOption) (dblock.Handle, error) {
	h, err := m.Locker.TryLock(ctx, name, options...)
	m.then()
	return h, err
}

// As by certmagic.CleanUpOwnLocks, while an operation begins its next attempt.
func TestALockThatIsUnlockedWhileItIsTakenAgainIsGivenBack(t *testing.T) {
	w := newWorld(t)
	var s *certmagiclock.Storage
	var first dblock.Handle
	then := func() { assert.ErrorIs(t, s.Unlock(t.Context(), name), dblock.ErrLost) }
	s, err := certmagiclock.WithLocks(&certmagic.FileStorage{Path: w.folder}, meddler{w.client().Locker(), &first,
		then}, prefix)
	require.NoError(t, err)
	require.NoError(t, s.Lock(t.Context(), name))
	w.lose(name)
	<-first.Context().Done()
	assert.ErrorIs(t, s.RenewLockLease(t.Context(), name, time.Hour), dblock.ErrNotHeld)
	other := w.instance()
	if ok, err := other.TryLock(t.Context(), name); !ok || err != nil {
		t.Errorf("nobody gives it back: %v %v", ok, err)
	} else if err := other.Unlock(t.Context(), name); err != nil {
		t.Error(err)
	}
}
