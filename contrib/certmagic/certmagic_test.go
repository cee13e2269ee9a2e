package certmagiclock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/dblock-go/dblock"
	certmagiclock "github.com/dblock-go/dblock/contrib/certmagic"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

const name = "issue_cert_example.com"

func TestOneOperationOfTwoInstancesHasTheName(t *testing.T) {
	w := newWorld(t)
	instances := []*certmagiclock.Storage{w.instance(), w.instance()}
	var within, most, total int
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			s := instances[i%2]
			if err := s.Lock(t.Context(), name); err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			within, total = within+1, total+1
			most = max(most, within)
			mu.Unlock()
			time.Sleep(time.Millisecond)
			mu.Lock()
			within--
			mu.Unlock()
			assert.NoError(t, s.Unlock(t.Context(), name))
		})
	}
	all.Wait()
	if most != 1 || total != 20 {
		t.Errorf("%d of %d at once", most, total)
	}
}

func TestTryLockDoesNotWait(t *testing.T) {
	w := newWorld(t)
	a, b := w.instance(), w.instance()
	if ok, err := a.TryLock(t.Context(), name); !ok || err != nil {
		t.Fatal(ok, err)
	}
	for _, s := range []*certmagiclock.Storage{a, b} {
		if ok, err := s.TryLock(t.Context(), name); ok || err != nil {
			t.Error(ok, err)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	assert.NoError(t, a.Unlock(over, name))
	if ok, err := b.TryLock(over, name); ok || !errors.Is(err, context.Canceled) {
		t.Error(ok, err)
	}
	if ok, err := b.TryLock(t.Context(), name); !ok || err != nil {
		t.Error(ok, err)
	}
	assert.NoError(t, b.Unlock(t.Context(), name))
}

func TestLockWaitsUntilItsContextEnds(t *testing.T) {
	w := newWorld(t)
	a, b := w.instance(), w.instance()
	require.NoError(t, a.Lock(t.Context(), name))
	for _, s := range []*certmagiclock.Storage{a, b} {
		short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if err := s.Lock(short, name); !errors.Is(err, dblock.ErrNotAcquired) ||
			!errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	}
	assert.NoError(t, a.Unlock(t.Context(), name))
	assert.ErrorIs(t, a.Unlock(t.Context(), name), dblock.ErrNotHeld, "one Unlock too many")
}

func TestALeaseIsRenewedWhileTheLockIsHeld(t *testing.T) {
	w := newWorld(t)
	a, b := w.instance(), w.instance()
	require.NoError(t, a.Lock(t.Context(), name))
	renew := func(s *certmagiclock.Storage) error { return s.RenewLockLease(t.Context(), name, time.Hour) }
	assert.NoError(t, renew(a), "held")
	assert.ErrorIs(t, renew(b), dblock.ErrNotHeld, "not held")
	w.lose(name)
	require.NoError(t, b.Lock(t.Context(), name))
	err := renew(a)
	// the client hears of it with a heartbeat
	for end := time.Now().Add(patience); err == nil && time.Now().Before(end); err = renew(a) {
		time.Sleep(10 * time.Millisecond)
	}
	if !errors.Is(err, dblock.ErrLost) || !errors.Is(err, dblock.ErrNotAcquired) {
		t.Errorf("another has it: %v", err)
	}
	assert.NoError(t, b.Unlock(t.Context(), name))
	assert.NoError(t, renew(a), "it is free again")
	if ok, err := b.TryLock(t.Context(), name); ok || err != nil {
		t.Errorf("a lock that was taken again is free: %v %v", ok, err)
	}
	assert.NoError(t, a.Unlock(t.Context(), name))
}

func TestTheNextOfAnInstanceWaitsForOneThatHasLostTheLock(t *testing.T) {
	w := newWorld(t)
	s := w.instance()
	require.NoError(t, s.Lock(t.Context(), name))
	w.lose(name)
	next := make(chan error, 1)
	go func() { next <- s.Lock(t.Context(), name) }()
	select {
	case err := <-next:
		t.Fatalf("two operations have the name: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	assert.ErrorIs(t, s.Unlock(t.Context(), name), dblock.ErrLost, "the first heard")
	select {
	case err := <-next:
		require.NoError(t, err)
	case <-time.After(patience):
		t.Fatal("the next has not got it")
	}
	assert.NoError(t, s.Unlock(t.Context(), name))
}

// Under a lock's context an owner enters what it has: here, both would have the name.
func TestTwoInstancesUnderOneLockAreTwo(t *testing.T) {
	w := newWorld(t)
	c := w.client()
	err := c.Locker().Do(t.Context(), "outer", func(ctx context.Context, _ dblock.Handle) error {
		var instances []*certmagiclock.Storage
		for range 2 {
			s, err := certmagiclock.WithLocks(&certmagic.FileStorage{Path: w.folder}, c.Locker(), prefix)
			if err != nil {
				return err
			}
			instances = append(instances, s)
		}
		if err := instances[0].Lock(ctx, name); err != nil {
			return err
		}
		if ok, err := instances[1].TryLock(ctx, name); ok || err != nil {
			t.Error(ok, err)
		}
		return instances[0].Unlock(ctx, name)
	})
	assert.NoError(t, err)
}

func TestALongNameIsALockOfItsOwn(t *testing.T) {
	s := newWorld(t).instance()
	long := "issue_cert_" + strings.Repeat("a", 250)
	for _, name := range []string{long + ".com", long + ".org"} {
		if ok, err := s.TryLock(t.Context(), name); !ok || err != nil {
			t.Fatal(ok, err)
		}
		defer s.Unlock(t.Context(), name)
	}
}

func TestBadInputIsRefused(t *testing.T) {
	w := newWorld(t)
	files, locker := &certmagic.FileStorage{Path: w.folder}, w.client().Locker()
	for what, make := range map[string]func() (*certmagiclock.Storage, error){
		"no storage": func() (*certmagiclock.Storage, error) { return certmagiclock.WithLocks(nil, locker, prefix) },
		"no client":  func() (*certmagiclock.Storage, error) { return certmagiclock.WithLocks(files, nil, prefix) },
		"no prefix":  func() (*certmagiclock.Storage, error) { return certmagiclock.WithLocks(files, locker, "") },
	} {
		assert.ErrorIs(t, assert.ErrOf(make()), dblock.ErrInvalidOption, what)
	}
}
