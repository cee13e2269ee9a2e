package bench

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/require"
)

const (
	many   = 5_000 // locks of one client
	takers = 64    // goroutines that take them
)

// BenchmarkMemory is the memory that a held lock takes in its client, of 5,000.
func BenchmarkMemory(b *testing.B) {
	each(b, func(b *testing.B, k kind) {
		c := k.create(b).mustOpen(b, poolSize, nil).mustClient(b)
		locks := make([]held, many)
		all := func(f func(i int) error) {
			errs := make([]error, takers)
			var wg sync.WaitGroup
			for g := range takers {
				wg.Go(func() {
					for i := g; i < many && errs[g] == nil; i += takers {
						errs[g] = f(i)
					}
				})
			}
			wg.Wait()
			require.NoError(b, errors.Join(errs...))
		}
		lock := func(i int) (err error) {
			locks[i], err = c.lock(b.Context(), fmt.Sprintf("name/%d", i))
			return err
		}
		unlock := func(i int) error {
			l := locks[i]
			locks[i] = nil
			return l.Unlock(b.Context())
		}
		all(lock) // connections opened, statements prepared
		all(unlock)
		var memory, n float64
		for ; b.Loop(); n++ {
			before := memoryInUse()
			all(lock)
			memory += float64(memoryInUse()-before) / many
			all(unlock)
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(memory/n, "bytes/lock")
	})
}

// memoryInUse is the memory of the heap and of all stacks, less what nobody needs any more.
func memoryInUse() int {
	runtime.GC()
	runtime.GC() // what finalizers and pools had kept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}
