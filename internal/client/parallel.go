package client

import (
	"sync"
)

// parallelism limits how many locks Close and Locks.Unlock release at a time.
const parallelism = 8

// parallel calls do for each i below n, parallelism at a time, and returns their errors.
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
