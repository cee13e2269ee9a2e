package sqlite_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/sqlite"
)

// The tests start themselves again as another process, told by the environment what to do.
const (
	childRole   = "DBLOCK_SQLITE_CHILD"
	childPath   = "DBLOCK_SQLITE_PATH"
	childRounds = "DBLOCK_SQLITE_ROUNDS"
)

func child() int {
	rounds, err := strconv.Atoi(os.Getenv(childRounds))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	pool, err := sql.Open(driverName, "file:"+os.Getenv(childPath)+"?"+unsynced)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	defer pool.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rounds)*patience)
	defer cancel()
	var result any
	switch os.Getenv(childRole) {
	case "turns":
		result, err = takeTurns(ctx, pool, rounds)
	case "count":
		err = countTogether(ctx, pool, rounds)
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(result)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// start runs a child and returns a function that waits for what it has to say.
func start(t *testing.T, role, path string, rounds int) func(result any) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childRole+"="+role, childPath+"="+path, fmt.Sprintf("%s=%d", childRounds, rounds))
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(t, cmd.Start())
	return func(result any) {
		t.Helper()
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%v: %s", err, stderr.String())
		}
		require.NoError(t, json.Unmarshal(stdout.Bytes(), result))
	}
}

// turn is one grant: its token, when its holder knew of it and when the holder began to give it
// away.
type turn struct{ Token, Granted, Released int64 }

// ball is the name that takeTurns hands to and fro.
const ball = "ball"

// takeTurns holds a name as many times as said, always with the next attempt in the queue before it
// lets go, so that two who do this hand the lock to and fro. It looks when it is woken and at no
// other time: a wake-up that is lost is a hang.
func takeTurns(ctx context.Context, pool *sql.DB, rounds int) (turns []turn, err error) {
	e := inside.Of(sqlite.New(pool))
	session := rand.Text()
	if err := insist(ctx,
		func() error { return e.OpenSession(ctx, driver.Session{ID: session, TTL: time.Hour}) }); err != nil {
		return nil, err
	}
	woken, ready := make(chan struct{}, 1), make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		_ = drivertest.Listen(ctx, e, session, func() { close(ready) }, func(protocol.Hint) {
			select {
			case woken <- struct{}{}:
			default:
			}
		})
	})
	select {
	case <-ready:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	enter := func(r protocol.Request) (int64, error) {
		if grant, taken, err := drivertest.Take(ctx, e, r); err != nil || taken {
			return grant.Token, err
		}
		grant, _, err := drivertest.Join(ctx, e, r)
		return grant.Token, err
	}
	await := func(attempt string) (int64, error) {
		for {
			states, err := e.Read(ctx, session, []string{ball}, 0)
			if err != nil {
				return 0, err
			}
			if len(states) == 1 && states[0].Holder.Attempt == attempt {
				return states[0].Holder.Grant.Token, nil
			}
			select {
			case <-woken:
			case <-ctx.Done():
				return 0, fmt.Errorf("not woken in turn %d: %w", len(turns), ctx.Err())
			}
		}
	}
	r := request(ball, session)
	token, err := enter(r)
	for ; err == nil && len(turns) < rounds; err = ctx.Err() {
		if token == 0 {
			if token, err = await(r.Attempt); err != nil {
				return nil, err
			}
		}
		t := turn{Token: token, Granted: time.Now().UnixNano()}
		if len(turns)+1 < rounds {
			r = request(ball, session)
			if _, err = enter(r); err != nil {
				return nil, err
			}
		}
		t.Released = time.Now().UnixNano()
		next, err := drivertest.Release(ctx, e, protocol.Held{Name: ball, Session: session, Token: token}, true)
		if err != nil {
			return nil, err
		}
		token = 0
		if len(next) > 0 && next[0].Session == session {
			token = next[0].Grant.Token
		}
		turns = append(turns, t)
	}
	return turns, err
}

// countTogether adds one to a number as many times as said with each of four writers, by reading
// and writing it under a lock, and no transaction.
func countTogether(ctx context.Context, pool *sql.DB, rounds int) error {
	e := inside.Of(sqlite.New(pool))
	session := rand.Text()
	if err := insist(ctx,
		func() error { return e.OpenSession(ctx, driver.Session{ID: session, TTL: time.Hour}) }); err != nil {
		return err
	}
	const writers = 4
	failures := make(chan error, writers)
	for range writers {
		go func() {
			for range rounds {
				if err := countOnce(ctx, e, pool, session); err != nil {
					failures <- err
					return
				}
			}
			failures <- nil
		}()
	}
	var errs []error
	for range writers {
		errs = append(errs, <-failures)
	}
	return errors.Join(errs...)
}

func countOnce(ctx context.Context, b driver.Backend, pool *sql.DB, session string) error {
	var grant protocol.Grant
	for taken := false; !taken; {
		var err error
		if grant, taken, err = drivertest.Take(ctx, b, request("count", session)); err != nil {
			return err
		}
	}
	var n, token int64
	err := insist(ctx, func() error { return pool.QueryRowContext(ctx, "SELECT n, token FROM count").Scan(&n, &token) })
	if err == nil && token >= grant.Token {
		err = fmt.Errorf("token %d after %d", grant.Token, token)
	}
	if err == nil {
		err = insist(ctx, func() error {
			_, err := pool.ExecContext(ctx, "UPDATE count SET n = ?, token = ?", n+1, grant.Token)
			return err
		})
	}
	_, failure := drivertest.Release(ctx, b, protocol.Held{Name: "count", Session: session, Token: grant.Token}, false)
	return errors.Join(err, failure)
}

// insist is what an application without a busy timeout must do about its own statements.
func insist(ctx context.Context, statement func() error) error {
	for {
		err := statement()
		if !busy(err) && !errors.Is(err, driver.ErrBusy) {
			return err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// use goes through the life of a lock on a pool that has no tables yet or has them.
func use(t *testing.T, pool *sql.DB) {
	t.Helper()
	require.NoError(t, migrate.Up(t.Context(), pool, migrate.SQLite))
	f := on(t, pool, "")
	a, b := f.session(), f.session()
	held := f.take("n", a)
	attempt := f.enqueue("n", b)
	if next := f.release(held, false); next.Attempt != attempt {
		t.Fatalf("%+v", next)
	}
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			if turns, err := takeTurns(t.Context(), pool, 5); err != nil || len(turns) != 5 {
				t.Errorf("%d turns, %v", len(turns), err)
			}
		})
	}
	wg.Wait()
}
