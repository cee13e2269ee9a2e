package store

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/crash"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/transaction"
)

// Config configures a store.
type Config struct {
	Host, App string
	TTL       time.Duration // of the sessions; also bounds every statement
	Clock     clock.Clock
	Log       *slog.Logger
	Deadlock  time.Duration // how long a waiter waits before it looks for a cycle; 0: never
	Crash     crash.Setting
}

// Engine has the calls of the engine beside the transitions of names, which are the Store's.
type Engine interface {
	driver.Setup
	driver.Sessions
	driver.Sweep
	driver.Records
	driver.Jobs
	driver.Inspection
	driver.Quorum
}

// Store is the database of one client.
type Store struct {
	*Calls
	Engine     Engine
	names      driver.Names
	config     Config
	hadSession atomic.Bool  // the client has had a session
	served     atomic.Bool  // the database has answered a statement
	database   atomic.Value // identifies the database, as its schema says: a string
}

// New makes the store of a client. It does no I/O.
func New(engine driver.Backend, config Config) *Store {
	return &Store{Calls: NewCalls(), Engine: engine, names: engine, config: config}
}

// HadSession reports whether the client has ever had a session.
func (s *Store) HadSession() bool { return s.hadSession.Load() }

// Look reads the state of a name as a session sees it. For session "" the state is without the
// places of this client, which may be thousands.
func (s *Store) Look(ctx context.Context, session, name string) (driver.State, error) {
	within, done := s.call(ctx)
	states, err := s.Engine.Read(within, session, []string{name}, 0)
	if err = done(err); err != nil || len(states) == 0 {
		return driver.State{}, err
	}
	return states[0], nil
}

// Run runs transitions, as driver.Names does. asked is the client's clock before the statement was
// sent.
func (s *Store) Run(ctx context.Context, ops ...protocol.Op) (
	results []protocol.Result, asked time.Duration, err error,
) {
	asked = s.config.Clock.Now()
	within, done := s.call(ctx)
	results, err = s.names.Run(within, ops...)
	if err != nil {
		err = s.correct(within, ops, err)
	}
	if err = done(err); err != nil {
		return make([]protocol.Result, len(ops)), asked, err
	}
	return results, asked, nil
}

// correct corrects the row of a name whose next ticket somebody has, so that the request can be
// sent again: the row was deleted by hand, and another client has made it anew.
func (s *Store) correct(ctx context.Context, ops []protocol.Op, err error) error {
	if !joins(ops[0]) || !transaction.KeyExists(err) {
		return err
	}
	if _, recounting := s.names.Run(ctx, protocol.Recount{Name: ops[0].On()}); recounting != nil {
		return driver.Join(err, recounting)
	}
	return driver.Fail(driver.ErrRetry, err)
}

// joins reports whether an op may add a place to a queue.
func joins(op protocol.Op) bool {
	if ops, sequence := op.(protocol.Sequence); sequence {
		return slices.ContainsFunc(ops, joins)
	}
	_, joins := op.(protocol.Join)
	return joins
}

// Do runs a transition that grants nothing to waiters of this client.
func (s *Store) Do(ctx context.Context, op protocol.Op) (protocol.Result, error) {
	results, _, err := s.Run(ctx, op)
	return results[0], err
}

// Inquire runs a call that no lock depends on, and retries it. ErrClosed after Close.
func (s *Store) Inquire(ctx context.Context, f func(ctx context.Context) error) error {
	if ctx == nil {
		return contract.ErrNilContext
	}
	if err := s.Begin(); err != nil {
		return err
	}
	defer s.Done()
	within, cancel := contract.UntilClosed(ctx, s.Answering)
	defer cancel()
	err := s.Explain(within, s.Quickly(within, f))
	if err != nil && ctx.Err() == nil && within.Err() != nil {
		return contract.ErrClosed
	}
	return err
}

// Quickly is Inquire for a caller that is counted as a call already.
func (s *Store) Quickly(ctx context.Context, f func(ctx context.Context) error) error {
	quick := Quick
	quick.Limit = s.config.TTL
	return s.Retry(ctx, quick, func() error {
		return s.pastBroken(ctx, func() error { return s.Call(ctx, f) })
	})
}

// Insist runs a call that a lock depends on, and retries it for a TTL. ErrClosed when Close ends
// it.
func (s *Store) Insist(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, cancel := contract.UntilClosed(ctx, s.Answering)
	defer cancel()
	patient := Patient
	patient.Limit = s.config.TTL
	err := s.Retry(ctx, patient, func() error { return s.Call(ctx, f) })
	if err != nil && s.Closing() {
		return contract.ErrClosed
	}
	return err
}

// CheckSchema returns the reason why this build cannot work with the database's tables, or nil.
func (s *Store) CheckSchema(ctx context.Context) error {
	within, done := s.call(ctx)
	var schema driver.Schema
	err := s.pastBroken(within, func() (err error) {
		schema, err = s.Engine.Schema(within)
		return err
	})
	if err != nil {
		return done(err)
	}
	if schema.Database != "" {
		s.database.Store(schema.Database)
	}
	return done(schema.Check())
}

// Explain replaces ErrSchema by the difference of the tables, or by the reason why they are not
// shown to this user, where that can be read.
func (s *Store) Explain(ctx context.Context, err error) error {
	if errors.Is(err, driver.ErrSchema) {
		which := s.CheckSchema(ctx)
		if errors.Is(which, driver.ErrSchema) || errors.Is(which, driver.ErrConfig) {
			return which
		}
	}
	return err
}

// identifyTimeout bounds the question of Database for the identity of the database.
const identifyTimeout = time.Second

// Database identifies the client's database, and asks again if renew is true. It returns "" where
// the identity is not known: the pool has no free connection to ask with, since transactions may
// have all of them.
func (s *Store) Database(ctx context.Context, renew bool) string {
	if renew || s.database.Load() == nil {
		if s.Engine.Connections().Left() {
			ctx, cancel := context.WithTimeout(ctx, identifyTimeout)
			defer cancel()
			_ = s.CheckSchema(ctx)
		}
	}
	id, _ := s.database.Load().(string)
	return id
}
