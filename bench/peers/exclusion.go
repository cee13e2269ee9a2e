package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	countEach  = 5 // increments of one goroutine
	countWork  = time.Millisecond
	countLimit = time.Minute
)

var errTwoHolders = errors.New("two holders at once")

// excludes has four goroutines of each of two clients count together: each reads the number, works,
// and writes the next one, under one lock. It returns errTwoHolders if they met, or if an increment
// was lost.
func excludes(ctx context.Context, p peer, at string) error {
	ctx, cancel := context.WithTimeout(ctx, countLimit)
	defer cancel()
	var number, inside atomic.Int64
	work, ctx := errgroup.WithContext(ctx)
	for range 2 {
		l, err := p.start(ctx, at)
		if err != nil {
			return err
		}
		defer l.close()
		for range 4 {
			work.Go(func() error {
				for range countEach {
					unlock, err := l.lock(ctx, "exclusion")
					if err != nil {
						return err
					}
					if inside.Add(1) != 1 {
						return errTwoHolders
					}
					n := number.Load()
					time.Sleep(countWork)
					number.Store(n + 1)
					inside.Add(-1)
					if err := unlock(ctx); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	if err := work.Wait(); err != nil {
		return err
	}
	if n := number.Load(); n != 2*4*countEach {
		return fmt.Errorf("%w: counted to %d instead of %d", errTwoHolders, n, 2*4*countEach)
	}
	return nil
}
