package faulttest

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"go.uber.org/goleak"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/reaper"
)

// actorVariable makes this binary an actor, and says which.
const actorVariable = "DBLOCK_FAULTTEST_ACTOR"

// reapInterval is short, so that many reapers meet in the time of a test.
const reapInterval = 300 * time.Millisecond

type actorConfig struct {
	Kind, DSN string
	TTL       time.Duration
	Reaper    bool
	Seed      uint64
	Bug       string        // one of bugs, "" for none
	Lose      string        // the call whose first reply gets lost
	Teller    *tellerConfig // nil: it obeys the commands below
}

// command is a line that an actor obeys. Each runs at once, beside those before it.
type command struct {
	Verb    string
	Op      int // chosen by the parent
	Name    string
	Hold    int // the op of the acquire that is meant
	Names   []string
	Workers int
	For     time.Duration
}

type held = dblock.Lock[any]

// handle is a hold and how it is told about.
type handle struct {
	op   int
	lock *held
}

type actor struct {
	*reporter
	config  actorConfig
	witness *witness
	db      *sql.DB // for what the locks protect
	client  *client
	crew    *crew

	mu      sync.Mutex // protects what follows
	stand   *stand
	handles map[int]*handle
	cancels map[int]context.CancelFunc
	hogs    map[int]*sql.Conn
}

// act is an actor's main function.
func act(text string, in io.Reader, out io.Writer) int {
	a := &actor{
		reporter: newReporter(out), witness: newWitness(),
		handles: map[int]*handle{}, cancels: map[int]context.CancelFunc{}, hogs: map[int]*sql.Conn{},
	}
	err := json.Unmarshal([]byte(text), &a.config)
	if err == nil && a.config.Teller != nil {
		return a.tell(in)
	}
	if err == nil {
		a.db, err = openSQL(a.config.Kind, a.config.DSN)
	}
	if err == nil {
		a.client, err = a.newClient()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	a.report(event{What: evReady})
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var c command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if c.Verb == "exit" {
			return a.exit(c)
		}
		go a.obey(c)
	}
	return 0
}

func (a *actor) obey(c command) {
	switch c.Verb {
	case "lock", "try":
		a.lock(c)
	case "cancel":
		a.mu.Lock()
		cancel := a.cancels[c.Hold]
		a.mu.Unlock()
		cancel()
	case "unlock":
		a.unlock(a.handle(c.Hold))
		a.report(event{What: evDone, Op: c.Op})
	case "write":
		a.write(a.handle(c.Hold))
	case "hog":
		a.hog(c)
	case "unhog":
		a.mu.Lock()
		conn := a.hogs[c.Hold]
		delete(a.hogs, c.Hold)
		a.mu.Unlock()
		_, err := conn.ExecContext(context.Background(), "ROLLBACK")
		_ = conn.Close()
		a.report(event{What: evDone, Op: c.Op}.with(err))
	case "campaign":
		a.campaign(c)
	case "resign":
		a.resign(c)
	case "observe":
		a.observe(c)
	case "work":
		a.crew = a.hire(c)
		a.report(event{What: evDone, Op: c.Op})
	case "pause":
		a.crew.pause()
		a.report(event{What: evIdle, Op: c.Op})
	case "resume":
		a.crew.resume()
		a.report(event{What: evDone, Op: c.Op})
	default:
		a.report(event{What: evDone, Op: c.Op, Err: "no such command: " + c.Verb})
	}
}

// exit closes everything in good order, and tells what it left running.
func (a *actor) exit(c command) int {
	var err error
	if a.crew != nil {
		err = a.crew.dismiss()
	}
	if stood := a.standDown(); err == nil {
		err = stood
	}
	if closed := a.client.close(); err == nil {
		err = closed
	}
	_ = a.db.Close()
	if leaked := goleak.Find(goleak.IgnoreTopFunction("github.com/dblock-go/dblock/internal/faulttest.(*witness).run")); err == nil {
		err = leaked
	}
	a.report(event{What: evDone, Op: c.Op}.with(err))
	return 0
}

// client is one of dblock's, with the pool that it was given.
type client struct {
	*dblock.Client[any]
	closePool func()
}

func (a *actor) newClient() (*client, error) {
	backend, closePool, err := openEngine(a.config.Kind, a.config.DSN)
	if err != nil {
		return nil, err
	}
	if a.config.Bug != "" {
		backend = bugs[a.config.Bug](backend, a.db)
	}
	if a.config.Lose != "" {
		backend = &losing{Backend: backend, call: a.config.Lose}
	}
	backend = &recorder{Backend: backend, report: a.reporter, db: a.db, sessions: map[string]bool{}}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	options := []dblock.Option{dblock.WithTTL(a.config.TTL), dblock.WithLogger(log)}
	if a.config.Reaper {
		options = append(options, dblock.WithReaper(reaper.Interval(reapInterval), reaper.OnReport(func(reaper.Report) {})))
	} else {
		options = append(options, dblock.WithoutReaper())
	}
	// The transactions of a caller are of no concern here, so that one type of client does for all engines.
	c, err := dblock.New(driver.Engine[any]{Backend: backend}, options...)
	if err != nil {
		closePool()
		return nil, err
	}
	return &client{c, closePool}, nil
}

func (c *client) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := c.Close(ctx)
	c.closePool()
	return err
}

func (a *actor) lock(c command) {
	ctx, cancel := context.WithCancel(context.Background())
	if c.For != 0 {
		ctx, cancel = context.WithTimeout(ctx, c.For)
	}
	a.mu.Lock()
	a.cancels[c.Op] = cancel
	a.mu.Unlock()
	a.acquire(ctx, a.client, c.Op, c.Name, c.Verb == "try")
}

// acquire tells of the attempt and of what came of it; nil: no lock.
func (a *actor) acquire(ctx context.Context, c *client, op int, name string, try bool) *handle {
	asked := session.Boottime()
	a.report(event{What: evAsked, Op: op, Name: name, At: asked})
	call := c.Lock
	if try {
		call = c.TryLock
	}
	lock, err := call(ctx, name)
	if err != nil {
		a.report(event{What: evRefused, Op: op, Name: name}.with(err))
		return nil
	}
	return a.hold(op, lock, asked)
}

func (a *actor) hold(op int, lock *held, asked time.Duration) *handle {
	at := session.Boottime()
	a.witness.add(op, lock.Context(), asked)
	h := &handle{op: op, lock: lock}
	a.mu.Lock()
	a.handles[op] = h
	a.mu.Unlock()
	a.report(event{What: evHeld, Op: op, Name: lock.Name(), Token: lock.Token(), At: at})
	context.AfterFunc(lock.Context(), func() {
		at, cause := session.Boottime(), context.Cause(lock.Context())
		if e := (event{What: evLost, Op: op, Name: lock.Name(), Token: lock.Token(), At: at}).with(cause); e.is(kindLost) || e.is(kindClosed) {
			e.Live = a.witness.live(op)
			a.report(e)
		}
	})
	return h
}

func (a *actor) handle(op int) *handle {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.handles[op]
}

func (a *actor) unlock(h *handle) {
	a.report(event{What: evEnding, Op: h.op, Name: h.lock.Name(), Token: h.lock.Token(), Live: a.witness.live(h.op)})
	err := h.lock.Unlock(context.Background())
	a.report(event{What: evUnlocked, Op: h.op, Name: h.lock.Name(), Token: h.lock.Token()}.with(err))
	a.witness.remove(h.op)
	a.mu.Lock()
	delete(a.cancels, h.op) // the handle stays, for a write that comes too late
	a.mu.Unlock()
}

// write changes what the lock protects, unless somebody with a higher token did already.
func (a *actor) write(h *handle) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var rows int64
	result, err := a.db.ExecContext(ctx, fmt.Sprintf(
		"UPDATE resource SET n = n + 1, token = %d WHERE name = '%s' AND token <= %[1]d", h.lock.Token(), h.lock.Name()))
	if err == nil {
		rows, err = result.RowsAffected()
	}
	a.report(event{What: evWrote, Op: h.op, Name: h.lock.Name(), Token: h.lock.Token(), Rows: rows}.with(err))
}

// hog opens a write transaction on a connection of its own, and leaves it open.
func (a *actor) hog(c command) {
	conn, err := a.db.Conn(context.Background())
	for _, statement := range []string{"BEGIN IMMEDIATE", "UPDATE resource SET n = n + 1000000"} {
		if err == nil {
			_, err = conn.ExecContext(context.Background(), statement)
		}
	}
	a.mu.Lock()
	a.hogs[c.Op] = conn
	a.mu.Unlock()
	a.report(event{What: evHogging, Op: c.Op}.with(err))
}
