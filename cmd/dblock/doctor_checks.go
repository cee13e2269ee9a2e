package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/migrate"
)

// schema checks whether this build can work with the tables.
func schema(ctx context.Context, e *examination) ([]finding, error) {
	is, err := e.backend.Schema(ctx)
	if errors.Is(err, driver.ErrSchema) {
		return found(problem(err.Error(), "see docs/operating.md"))
	}
	if err != nil {
		return found(problem(fmt.Sprintf("dblock's tables cannot be read: %v", because(ctx, err)),
			"clients cannot, either"))
	}
	if err := is.Check(); err != nil {
		return found(problem(advised(err).Error(), "see docs/upgrading.md"))
	}
	if is.Version > driver.SchemaVersion {
		return found(note(fmt.Sprintf("the tables are at version %d, and this command is for version %d: it can use "+
			"them", is.Version, driver.SchemaVersion), "install the newer command"))
	}
	return found(fine(fmt.Sprintf("the tables are at version %d, usable from %d", is.Version, is.UsableFrom)))
}

// session opens a session, and ends it. The engine refuses a client what it refuses here: a server
// that is read-only or foreign, settings with which no lock can be kept, triggers on the tables, a
// pooler that makes no transactions.
func session(ctx context.Context, e *examination) ([]finding, error) {
	if e.looks {
		return nil, nil
	}
	host, _ := os.Hostname()
	s := driver.Session{ID: rand.Text(), Host: host, PID: os.Getpid(), App: app, TTL: 15 * time.Second, First: true}
	err := e.backend.OpenSession(ctx, s)
	if err == nil || driver.InDoubt(err) {
		tidying, cancel := context.WithTimeout(context.WithoutCancel(ctx), contract.CleanupTimeout)
		defer cancel()
		err = cmp.Or(err, e.backend.EndSession(tidying, s.ID, true))
	}
	switch {
	case err == nil:
		return found(fine("a client of this data source can begin"))
	case ctx.Err() != nil:
		return nil, err
	case errors.Is(err, driver.ErrReadOnly):
		return found(problem(fmt.Sprintf("nothing can be locked here: %v", because(ctx, err)),
			"connect to the primary, let this user's sessions write (default_transaction_read_only, "+
				"transaction_read_only), or make the file and its folder writable"))
	case errors.Is(err, driver.ErrBusy):
		return found(note(fmt.Sprintf("no client can begin at the moment: %v", because(ctx, err)),
			"end transactions that write sooner"))
	}
	return found(problem(fmt.Sprintf("a client of this data source cannot begin: %v", because(ctx, err)),
		"change what the error names"))
}

// listening listens for grants as the waiters of a client do.
func listening(ctx context.Context, e *examination) ([]finding, error) {
	if e.looks {
		return nil, nil
	}
	id := rand.Text()
	up, err := e.backend.Upkeep(ctx, id)
	if err != nil {
		return nil, err
	}
	defer up.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	hears := false
	ready := func() { hears = true; stop() }
	err = up.Listen(ctx, id, ready, func(protocol.Hint) {})
	switch {
	case hears:
		return found(fine("clients listen: a lock is handed over in milliseconds"))
	case errors.Is(err, driver.ErrUnsupported) && e.engine == migrate.Postgres:
		return found(note(fmt.Sprintf("clients poll: %v", err),
			"let them listen past it: postgres.New(pool, postgres.Listen(dsn)), with a DSN of the database itself; or "+
				"pool sessions (PgBouncer: pool_mode = session)"))
	case errors.Is(err, driver.ErrUnsupported):
		return found(note(fmt.Sprintf("clients poll: %v", err), "see docs/operating.md, connections"))
	}
	return nil, cmp.Or(err, errors.New("listening ended before it began"))
}

// nowOf has the statements that read the clock of the leases, in microseconds since 1970. On SQLite
// that is this host's.
var nowOf = map[migrate.Engine]string{
	migrate.Postgres: "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
	migrate.MySQL: "SELECT CAST(TIMESTAMPDIFF(MICROSECOND, TIMESTAMP '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) " +
		"AS SIGNED)",
}

// clocks compares the server's clock to this host's. The shortest of some round trips is the most
// exact.
func clocks(ctx context.Context, e *examination) ([]finding, error) {
	if e.engine == migrate.SQLite {
		return nil, nil
	}
	trip, ahead := time.Duration(math.MaxInt64), time.Duration(0)
	for range 5 {
		var micros int64
		before := time.Now()
		if err := e.QueryRowContext(ctx, nowOf[e.engine]).Scan(&micros); err != nil {
			return nil, err
		}
		if took := time.Since(before); took < trip {
			trip, ahead = took, before.Add(took/2).Sub(time.UnixMicro(micros))
		}
	}
	return found(apart(ahead, trip/2))
}

const (
	slotTolerance = time.Minute // OnceAt refuses a slot that is further ahead
	noticeable    = time.Second // an error from which on ages shown by the commands are wrong
)

// apart judges the time by which this host's clock is ahead of the server's, give or take an error.
// Locks compare no clocks: only commands and options that name a time are affected.
func apart(ahead, give time.Duration) finding {
	side, does := "ahead of", "OnceAt and run --slot-of refuse its slots"
	if ahead < 0 {
		side, does = "behind", "its jobs of OnceAt and run --slot-of come late"
	}
	how := fmt.Sprintf("this host's clock is %v %s the server's (±%v)", ahead.Abs().Round(time.Millisecond), side,
		give.Round(time.Microsecond))
	switch least := ahead.Abs() - give; {
	case least > slotTolerance:
		return problem(how+"; "+does+", and ages are wrong. Locks do not suffer", "synchronise both clocks (NTP)")
	case least > noticeable:
		return note(how+"; ages that are shown are wrong by this. Locks do not suffer", "synchronise both clocks (NTP)")
	}
	return fine(how)
}
