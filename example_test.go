package dblock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/internal/testing/example"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/postgres"
)

// openClient makes a client on tables in memory. An application opens a database: see the overview
// of the package.
func openClient(options ...dblock.Option) (client *dblock.Client[*sql.Tx], done func()) {
	t := &example.T{}
	return dblocktest.New[*sql.Tx](t, options...).Client, t.End
}

// openPostgres opens the application's database, for the examples of transactions. They do not run
// here: internal/testing/suite has tests of what they say.
func openPostgres() (*sql.DB, *dblock.Client[*sql.Tx]) {
	db := must(sql.Open("pgx", "postgres://app@localhost/app"))
	return db, must(dblock.New(postgres.NewSQL(db)))
}

// must ends an example that cannot go on.
func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func ExampleClient_Do() {
	client, done := openClient()
	defer done()
	err := client.Do(context.Background(), "invoice/42", func(ctx context.Context, l *dblock.Lock) error {
		fmt.Println("nobody else has", l.Name()) // ctx ends if the lock is lost
		return nil
	})
	fmt.Println(err)
	// Output:
	// nobody else has invoice/42
	// <nil>
}

// Lock waits its turn for as long as its context allows.
func ExampleClient_Lock() {
	client, done := openClient()
	defer done()
	ctx := context.Background()
	first := must(client.Lock(ctx, "printer"))
	soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err := client.Lock(soon, "printer")
	fmt.Println(errors.Is(err, dblock.ErrNotAcquired), errors.Is(err, context.DeadlineExceeded))

	fmt.Println(first.Unlock(ctx))
	second := must(client.Lock(ctx, "printer"))
	defer second.Unlock(ctx)
	fmt.Println("a higher token:", second.Token() > first.Token())
	// Output:
	// true true
	// <nil>
	// a higher token: true
}

// The wait is bounded, the work is not.
func ExampleWaitAtMost() {
	client, done := openClient()
	defer done()
	ctx := context.Background()
	first := must(client.Lock(ctx, "printer"))
	defer first.Unlock(ctx)
	err := client.Do(ctx, "printer", func(ctx context.Context, l *dblock.Lock) error {
		return nil // ctx ends with the lock, however long this takes
	}, dblock.WaitAtMost(50*time.Millisecond))
	fmt.Println(errors.Is(err, dblock.ErrNotAcquired), errors.Is(err, context.DeadlineExceeded))
	// Output: true true
}

// TryLock does not wait, and says who has the lock.
func ExampleClient_TryLock() {
	client, done := openClient(dblock.WithHost("web-1"))
	defer done()
	ctx := context.Background()
	lock := must(client.TryLock(ctx, "import"))
	defer lock.Unlock(ctx)
	_, err := client.TryLock(ctx, "import")
	if taken := new(dblock.NotAcquiredError); errors.As(err, &taken) {
		fmt.Println("held on", taken.Host)
	}
	// Output: held on web-1
}

// The transaction that writes holds the lock, and ends it.
func ExampleClient_LockTx() {
	db, client := openPostgres()
	ctx := context.Background()
	defer client.Close(ctx)

	tx := must(db.BeginTx(ctx, nil))
	defer tx.Rollback()
	if err := client.LockTx(ctx, tx, "account/a", "account/b"); err != nil {
		log.Fatal(err)
	}
	must(tx.ExecContext(ctx, "UPDATE accounts SET balance = balance - 10 WHERE id = 'a'"))
	must(tx.ExecContext(ctx, "UPDATE accounts SET balance = balance + 10 WHERE id = 'b'"))
	if err := tx.Commit(); err != nil { // the write, and the end of both locks
		log.Fatal(err)
	}
}

// A transaction that loses a race is rolled back, and run again.
func ExampleErrRetry() {
	db, client := openPostgres()
	ctx := context.Background()
	defer client.Close(ctx)

	err := optimistic.Retry(ctx, func(ctx context.Context) error {
		tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable})
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := client.LockTx(ctx, tx, "account/a"); err != nil {
			return err // ErrRetry, say: a deadlock, or a snapshot that is older than the lock
		}
		if _, err := tx.ExecContext(ctx, "UPDATE accounts SET balance = balance - 10 WHERE id = 'a'"); err != nil {
			return err
		}
		return tx.Commit() // the driver's own error after a lost race: Retry knows it
	})
	if err != nil {
		log.Fatal(err)
	}
}

// Long work under a lock, then a write that cannot come too late.
func ExampleClient_Guard() {
	db, client := openPostgres()
	ctx := context.Background()
	defer client.Close(ctx)
	write := func(lock *dblock.Lock, body string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := client.Guard(ctx, tx, lock); err != nil {
			return err // ErrLost: nothing is written
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO reports VALUES ('2026-11', $1)", body); err != nil {
			return err
		}
		if err := client.UnlockTx(ctx, tx, lock); err != nil {
			return err
		}
		return tx.Commit() // the write and the release, or neither
	}

	slow := must(client.Lock(ctx, "report/2026-11"))
	must(client.Break(ctx, "report/2026-11", "it took too long"))
	fast := must(client.Lock(ctx, "report/2026-11"))
	fmt.Println("the holder writes:", write(fast, "by the second"))                                // <nil>
	fmt.Println("the one before is lost:", errors.Is(write(slow, "by the first"), dblock.ErrLost)) // true
}

// Several names at once, or none of them: there is no deadlock, whatever the order.
func ExampleClient_LockAll() {
	client, done := openClient()
	defer done()
	ctx := context.Background()
	locks := must(client.LockAll(ctx, []string{"stock/bolts", "stock/nuts"}))
	fmt.Println(locks.Names(), locks.Context().Err())
	fmt.Println(locks.Unlock(ctx))
	// Output:
	// [stock/bolts stock/nuts] <nil>
	// <nil>
}

// Any number of readers have a name at once; a writer has it alone.
func ExampleShared() {
	client, done := openClient()
	defer done()
	ctx := context.Background()
	one := must(client.Lock(ctx, "catalogue", dblock.Shared()))
	two := must(client.Lock(ctx, "catalogue", dblock.Shared()))
	_, err := client.TryLock(ctx, "catalogue")
	fmt.Println("a writer beside readers:", errors.Is(err, dblock.ErrNotAcquired))
	_, _ = one.Unlock(ctx), two.Unlock(ctx)
	writer := must(client.TryLock(ctx, "catalogue"))
	fmt.Println("and after them:", writer.Unlock(ctx))
	// Output:
	// a writer beside readers: true
	// and after them: <nil>
}

// At most 3 exports at a time, over all processes.
func ExamplePermits() {
	client, done := openClient()
	defer done()
	ctx := context.Background()
	for n := range 4 {
		permit, err := client.TryLock(ctx, "exports", dblock.Permits(1, 3))
		if err != nil {
			fmt.Println(n, errors.Is(err, dblock.ErrNotAcquired))
			continue
		}
		fmt.Println(n, "runs")
		defer permit.Unlock(ctx)
	}
	// Output:
	// 0 runs
	// 1 runs
	// 2 runs
	// 3 true
}
