package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock"
)

// lockName is the common name of the lock: any string, the same in all servers.
const lockName = "dblock_example_fee/account/1"

// server is a service server. TX is the type of a transaction of the application's driver: pgx.Tx
// or *sql.Tx.
type server[TX any] struct {
	client   *dblock.Client[TX]
	accounts accounts
	tell     func(report)
}

// deduct takes one fee from the account, under the lock.
func (s *server[TX]) deduct(ctx context.Context) error {
	asked, written := time.Now(), false

	err := s.client.Do(ctx, lockName, func(ctx context.Context, lock *dblock.Lock) error {
		// While ctx lives, no other process is in here.
		got := time.Now()
		account, err := s.accounts.read(ctx)
		if err != nil {
			return err
		}
		account = account.afterFee()
		// The write is decided by the token, not by ctx: after a cancellation the outcome would be
		// unknown.
		if err := s.accounts.write(context.WithoutCancel(ctx), account, lock.Token()); err != nil {
			return err
		}
		written = true
		s.tell(report{Kind: feeTaken, Token: lock.Token(), Wait: got.Sub(asked), At: got})
		return nil
	})

	switch lost := errors.Is(err, dblock.ErrLost); { // the server was away for longer than the TTL
	case lost && written:
		return nil // in time: the token was let through
	case lost:
		return s.deduct(ctx)
	}
	return err
}

// deductUnlocked is deduct without the lock: it overwrites another server's write between its read
// and its write.
func (s *server[TX]) deductUnlocked(ctx context.Context) error {
	account, err := s.accounts.read(ctx)
	if err != nil {
		return err
	}
	account = account.afterFee()
	if err := s.accounts.write(ctx, account, 0); err != nil {
		return err
	}
	s.tell(report{Kind: feeTaken})
	return nil
}

// stay is deduct with the accident in the middle. With -crash the server is killed while it waits
// here. With -pause it is stopped, and when it wakes up, another server has the lock.
func (s *server[TX]) stay(ctx context.Context) error {
	asked := time.Now()
	err := s.client.Do(ctx, lockName, func(ctx context.Context, lock *dblock.Lock) error {
		got := time.Now()
		account, err := s.accounts.read(ctx)
		if err != nil {
			return err
		}
		s.tell(report{Kind: isInside, Token: lock.Token(), Wait: got.Sub(asked), At: got})
		<-ctx.Done()
		cause := context.Cause(ctx)
		if !errors.Is(cause, dblock.ErrLost) {
			return cause
		}
		woken := report{Kind: isWoken, Token: lock.Token(), At: time.Now(), Text: cause.Error()}
		// A good program stops here. This one writes the result of an outdated balance.
		err = s.accounts.write(context.WithoutCancel(ctx), account.afterFee(), lock.Token())
		woken.Refused = errors.Is(err, errRefused)
		s.tell(woken)
		return err
	})
	if errors.Is(err, dblock.ErrLost) && errors.Is(err, errRefused) {
		return nil // as it should be
	}
	return err
}

// work does a number of rounds with a number of workers.
func (s *server[TX]) work(ctx context.Context, workers, rounds int, round func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var begun atomic.Int64
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for ctx.Err() == nil && begun.Add(1) <= int64(rounds) {
				if err := round(ctx); err != nil {
					cancel(err)
				}
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}
