package enginetest

import (
	"fmt"
	"sync"
	"testing"

	"github.com/dblock-go/dblock/internal/dbtest"
)

// test is one sentence about dblock.
type test struct {
	says string
	run  func(t *testing.T, e *env)
}

// The places of tests. A new test stands in own, until it is known to need less.
type (
	// shared tests share a database. Whatever they lock has a name from env.name, they look at no
	// whole table and change none, and leave no client behind.
	shared []test
	// own tests have a database each.
	own []test
	// moving tests have one each too, and may move its clock and that of their clients:
	// env.advance.
	moving []test
	// flowing tests have one each too, and time flies in it for the database and for the clients:
	// whatever comes with time comes soon. What is due within a TTL is waited for by its event.
	flowing []test
)

// placed is a test with its place.
type placed struct {
	test
	in func(t *testing.T, w Wiring, one *common) *env
}

// inPlaces is a list of tests in their places.
func inPlaces(places ...interface{ placed() []placed }) (all []placed) {
	for _, p := range places {
		all = append(all, p.placed()...)
	}
	return all
}

func (tests shared) placed() []placed {
	return place(tests, func(t *testing.T, w Wiring, one *common) *env { return one.env(t, w) })
}

func (tests own) placed() []placed {
	return place(tests, func(t *testing.T, w Wiring, _ *common) *env { return newEnv(t, w) })
}

func (tests moving) placed() []placed {
	return place(tests, func(t *testing.T, w Wiring, _ *common) *env {
		e := newEnv(t, w)
		e.move(t)
		return e
	})
}

func (tests flowing) placed() []placed {
	return place(tests, func(t *testing.T, w Wiring, _ *common) *env {
		e := newEnv(t, w)
		e.move(t)
		e.flow(t)
		return e
	})
}

func place(tests []test, in func(t *testing.T, w Wiring, one *common) *env) (all []placed) {
	for _, test := range tests {
		all = append(all, placed{test, in})
	}
	return all
}

// common is the database that tests share.
type common struct {
	t *testing.T // as long as which it is there

	mu    sync.Mutex // protects what follows
	db    *dbtest.Database
	tests int
}

// env makes the env of a test with names of its own.
func (c *common) env(t *testing.T, w Wiring) *env {
	c.mu.Lock()
	if c.db == nil {
		db := dbtest.Migrated(c.t, w.Kind)
		c.db = &db
	}
	c.tests++
	db, prefix := *c.db, fmt.Sprintf("%d/", c.tests)
	c.mu.Unlock()
	e := envIn(t, w, db)
	e.prefix = prefix
	return e
}

// name is a name that no other test has.
func (e *env) name(n string) string { return e.prefix + n }
