package client

import (
	"context"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/store"
)

// parallelism limits how many locks Close and Locks.Unlock release at a time.
const parallelism = 8

// lockWithin waits for a mutex until ctx ends.
func lockWithin(ctx context.Context, try func() bool) error {
	for !try() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		store.Pause(ctx, time.Millisecond)
	}
	return nil
}

// parallel calls do for each i below n, some at a time, and returns their errors.
func parallel(n int, do func(i int) error) []error {
	outcomes := make([]error, n)
	free := make(chan struct{}, parallelism)
	var all sync.WaitGroup
	for i := range n {
		free <- struct{}{}
		all.Go(func() {
			outcomes[i] = do(i)
			<-free
		})
	}
	all.Wait()
	return outcomes
}
