package runtest

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/memory"
	"github.com/dblock-go/dblock/internal/protocol"
)

var errCut = driver.Fail(driver.ErrUnavailable, errors.New("the connection broke"))

// statement is a call of the engine that is under way.
type statement struct {
	m        *machine
	kind     string
	about    about
	who      string // for the order of the list, and for the history
	run      func() // takes effect, in the tables
	refuse   func(err error)
	answer   func() // what run found, or the refusal
	lose     func() // the connection breaks instead
	said     func() (answer any, err error)
	sent     bool // the database has it: it may take effect, whatever becomes of its machine
	done     bool // it has taken effect, or was refused
	left     bool // its caller does not wait any more
	doubtful bool // likewise, and the judge knows
}

func (s *statement) String() string { return s.m.String() + " " + s.kind + " " + s.who }

// about is what a statement is about.
type about struct {
	name     string
	requests []protocol.Request
	attempts []string
	token    int64
	tx       *transaction // that it is made in; nil: in none
	served   bool
	reads    bool
}

// ask sends a statement, and waits until the scheduler delivers its answer, or until ctx ends. Then
// it may take effect all the same. A statement that changes a name finds the row busy while an
// application's transaction has locked that.
func ask[A any](ctx context.Context, m *machine, kind string, of about, run func() (A, error)) (A, error) {
	type answer struct {
		a   A
		err error
	}
	answered := make(chan answer, 1)
	var got answer
	s := &statement{m: m, kind: kind, about: of}
	s.run = func() {
		s.done = true
		if !of.reads && m.world.tables.busy(of.name) && of.tx == nil || of.tx != nil && m.world.tables.barred(of.name,
			of.tx) {
			s.refuse(driver.ErrBusy)
			return
		}
		got.a, got.err = run()
	}
	s.refuse = func(err error) {
		s.done, got = true, answer{err: err}
		m.failed = m.failed || kind == "remove" && errors.Is(err, driver.ErrBusy) // it is not tried again
	}
	s.answer = func() { answered <- got }
	s.lose = func() { answered <- answer{err: errCut} }
	s.said = func() (any, error) { return got.a, got.err }
	if err := ctx.Err(); err != nil {
		return answer{}.a, err
	}
	m.world.add(s)
	select {
	case a := <-answered:
		return a.a, a.err
	case <-ctx.Done():
		m.world.leave(s)
		return answer{}.a, ctx.Err()
	}
}

// none is the answer of a statement that has only an error.
type none struct{}

// engine is the database as one machine reaches it.
type engine struct {
	driver.Backend // what is never called
	m              *machine
}

func (e engine) tables() *tables { return e.m.world.tables }

func (engine) Connections() driver.Pool { return driver.Pool{} }

func (engine) DropReadOnly(context.Context) {}

// Events has none: the machine has no Break with a reason.
func (engine) Events(context.Context, driver.EventFilter, int) ([]protocol.Event, error) {
	return nil, nil
}

// HostFolder returns none: each machine is a host of its own.
func (engine) HostFolder(bool) (path string, ok bool) { return "", false }

func (engine) Schema(context.Context) (driver.Schema, error) {
	return driver.Schema{Version: driver.SchemaVersion, UsableFrom: 1}, nil
}

func (engine) Attend(string, time.Duration) (leave func()) { return func() {} }

func (engine) Lending() context.Context { return context.Background() }

func (e engine) OpenSession(ctx context.Context, s driver.Session) error {
	_, err := ask(ctx, e.m, "open session", about{served: !s.Detached}, func() (none, error) {
		return none{}, e.tables().link.OpenSession(context.Background(), s)
	})
	return err
}

func (e engine) EndSession(ctx context.Context, id string, _ bool) error {
	_, err := ask(ctx, e.m, "end session", about{}, func() (none, error) {
		e.tables().endSession(id)
		return none{}, nil
	})
	return err
}

func (e engine) Upkeep(ctx context.Context, session string) (driver.Upkeep, error) {
	return ask(ctx, e.m, "connect", about{served: true}, func() (driver.Upkeep, error) {
		return upkeep{e, new(memory.Walk)}, nil
	})
}

func (e engine) Beat(ctx context.Context, id string, ttl time.Duration) (bool, error) {
	return ask(ctx, e.m, "beat", about{served: true}, func() (bool, error) {
		return e.tables().link.Beat(context.Background(), id, ttl)
	})
}

func (e engine) OnSideConn(ctx context.Context, do func(ctx context.Context, up driver.Upkeep) error) error {
	return do(ctx, upkeep{e, new(memory.Walk)})
}

// upkeep is a reserved connection.
type upkeep struct {
	engine
	walk *memory.Walk
}

func (u upkeep) Heartbeat(ctx context.Context, id string, ttl time.Duration) (bool, error) {
	return u.Beat(ctx, id, ttl)
}

func (u upkeep) Claims(ctx context.Context, id string, known []driver.Claim) ([]driver.Claim, error) {
	claims, err := u.engine.Claims(ctx, id, driver.All)
	return u.walk.Step(claims, known), err
}

func (u upkeep) Close() error { return nil }

func (e engine) Run(ctx context.Context, ops ...protocol.Op) ([]protocol.Result, error) {
	kind, what := kindOf(ops)
	return ask(ctx, e.m, kind, what, func() ([]protocol.Result, error) { return e.tables().run(ops) })
}

// kindOf names a request in the story, and tells what is to be known of it.
func kindOf(ops []protocol.Op) (string, about) {
	what := about{name: ops[0].On()}
	if sequence, is := ops[0].(protocol.Sequence); is {
		_, what := kindOf(sequence)
		what.name = sequence.On()
		return "sequence", what
	}
	if len(ops) > 1 {
		what.name = ""
	}
	for _, op := range ops {
		switch op := op.(type) {
		case protocol.Take:
			what.requests = append(what.requests, op.Request)
		case protocol.Join:
			what.requests = append(what.requests, op.Request)
		}
	}
	switch op := ops[0].(type) {
	case protocol.Take:
		if len(ops) == 1 {
			return "take", what
		}
	case protocol.Join:
		return "join", what
	case protocol.Move:
		what.attempts, what.token = []string{op.Attempt, op.To.Attempt}, op.Token
		if op.Self == op.To.Session {
			return "resume", what
		}
		return "detach", what
	case protocol.Removal:
		if len(ops) == 1 {
			what.attempts, what.token = []string{op.Attempt}, op.Token
			if op.Self == "" {
				return "remove", what
			}
			return [...]string{"release", "undo", "take over", "break", "hand over"}[op.Cause], what
		}
	}
	if len(ops) > 1 {
		return "batch", what
	}
	return "change", what
}

func (e engine) Read(ctx context.Context, id string, names []string, waiters int) ([]driver.State, error) {
	kind := "look"
	if waiters > 0 {
		kind = "describe"
	}
	return ask(ctx, e.m, kind, about{name: names[0], reads: true}, func() ([]driver.State, error) {
		return e.tables().link.Read(context.Background(), id, names, waiters)
	})
}

func (e engine) Claims(ctx context.Context, id string, limit int) ([]driver.Claim, error) {
	return ask(ctx, e.m, "claims", about{reads: true}, func() ([]driver.Claim, error) {
		return e.tables().link.Claims(context.Background(), id, limit)
	})
}

// listener is the connection on which a session hears of its grants.
type listener struct {
	m         *machine
	session   string
	heard     chan func() error // what arrives, for the goroutine of Listen
	ready     func()
	wake      func(protocol.Hint)
	connected bool            // it has connected
	over      bool            // it was cut, or nobody listens any more
	hints     []protocol.Hint // on the way
}

func (e upkeep) Listen(ctx context.Context, id string, ready func(), wake func(protocol.Hint)) error {
	l := &listener{m: e.m, session: id, heard: make(chan func() error, 1), ready: ready, wake: wake}
	e.m.world.listen(l)
	defer e.m.world.unlisten(l)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case do := <-l.heard:
			if err := do(); err != nil {
				return err
			}
		}
	}
}
