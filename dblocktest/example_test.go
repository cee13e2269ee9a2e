package dblocktest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/jobs"
)

// report is a part of an application: it writes pages for as long as it has the lock.
func report(
	ctx context.Context, client *dblock.Client[*Tx], write func(ctx context.Context, l *dblock.Lock, page int),
) error {
	return client.Do(ctx, "report", func(ctx context.Context, l *dblock.Lock) error {
		for page := 1; page <= 3 && ctx.Err() == nil; page++ {
			write(ctx, l, page)
		}
		return context.Cause(ctx)
	})
}

// Where the code under test keeps its lock to itself, its name will do.
func ExampleFake_LoseName() {
	test(func(t testing.TB) { // func TestReportStops(t *testing.T)
		f := dblocktest.New[*Tx](t)
		err := report(context.Background(), f.Client, func(ctx context.Context, _ *dblock.Lock, page int) {
			fmt.Println("page", page)
			f.LoseName(t, "report")
			<-ctx.Done()
		})
		fmt.Println("lost:", errors.Is(err, dblock.ErrLost))
	})
	// Output:
	// page 1
	// lost: true
}

// The application stops when it loses its lock.
func ExampleFake_Lose() {
	test(func(t testing.TB) { // func TestReportStops(t *testing.T)
		f := dblocktest.New[*Tx](t)
		err := report(context.Background(), f.Client, func(ctx context.Context, l *dblock.Lock, page int) {
			fmt.Println("page", page)
			if page == 2 {
				f.Lose(t, l)
				<-ctx.Done()
			}
		})
		fmt.Println("lost:", errors.Is(err, dblock.ErrLost))
	})
	// Output:
	// page 1
	// page 2
	// lost: true
}

// A job runs once an hour, whatever the number of processes.
func ExampleFake_Advance() {
	test(func(t testing.TB) { // func TestJob(t *testing.T)
		f := dblocktest.New[*Tx](t)
		second := f.Another(t)
		for hour := range 2 {
			for _, process := range []*dblocktest.Fake[*Tx]{f, second} {
				ran, err := jobs.New(process.Client).OncePer(context.Background(), "job", time.Hour,
					func(context.Context, *dblock.Lock, time.Time) error { return nil })
				fmt.Println("hour", hour, "ran", ran, err)
			}
			f.Advance(time.Hour)
		}
	})
	// Output:
	// hour 0 ran true <nil>
	// hour 0 ran false <nil>
	// hour 1 ran true <nil>
	// hour 1 ran false <nil>
}

// Somebody else has the lock.
func ExampleFake_Hold() {
	test(func(t testing.TB) { // func TestReportIsWrittenElsewhere(t *testing.T)
		f := dblocktest.New[*Tx](t)
		release := f.Hold(t, "report")
		_, err := f.Client.TryLock(context.Background(), "report")
		fmt.Println("while it is held:", errors.Is(err, dblock.ErrNotAcquired))
		release()
		_, err = f.Client.TryLock(context.Background(), "report")
		fmt.Println("afterwards:", err)
	})
	// Output:
	// while it is held: true
	// afterwards: <nil>
}

// A process is cut off from the database for longer than its TTL: another one takes over.
func ExampleFake_Down() {
	test(func(t testing.TB) { // func TestFailover(t *testing.T)
		f := dblocktest.New[*Tx](t)
		second := f.Another(t)
		lock, err := f.Client.Lock(context.Background(), "leader")
		require.NoError(t, err)
		f.Down()
		f.Advance(f.Client.TTL())
		next, err := second.Client.TryLock(context.Background(), "leader")
		require.NoError(t, err)
		fmt.Println("lost:", errors.Is(context.Cause(lock.Context()), dblock.ErrLost))
		fmt.Println("fenced:", next.Token() > lock.Token())
	})
	// Output:
	// lost: true
	// fenced: true
}

// test stands for go test: an example has no *testing.T.
func test(f func(t testing.TB)) {
	t := &silent{}
	defer t.end()
	f(t)
}

// silent is a test that logs to nowhere.
type silent struct{ tb }

func (*silent) Helper()           {}
func (*silent) Output() io.Writer { return io.Discard }
