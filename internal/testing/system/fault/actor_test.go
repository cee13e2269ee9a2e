//go:build unix

package fault

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
	"github.com/dblock-go/dblock/internal/crash"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/reaper"
)

// actorVariable makes this binary an actor, and says which.
const actorVariable = "DBLOCK_FAULT_ACTOR"

// reapInterval is short, so that many reapers meet in the time of a test.
const reapInterval = 300 * time.Millisecond

type actorConfig struct {
	Kind, DSN string
	TTL       time.Duration
	Reaper    bool
	Seed      uint64
	Bug       string        // one of bugs, "" for none
	Long      int           // of a hundred works under a lock in modeChaos, so many are about as long as the TTL
	Deadlock  time.Duration // the interval of deadlock checks, 0: the default
	Beats     bool          // tell of sessions and their heartbeats
	Host      string        // the folder of all databases, "": the default
	Folder    crash.Folder  // that of this database; for bugs in what is made of it
}

// command is a line that an actor obeys. Each runs at once, beside those before it.
type command struct {
	Verb    string
	Op      int // chosen by the parent
	Name    string
	Hold    int      // the op of the acquire that is meant
	Names   []string // work; lock: all of them together, after Name
	Portion portion  // of a lock
	Under   int      // the op of an acquire: its owner asks; 0: a new owner
	Workers int
	For     time.Duration // work: the slots' length
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
	several map[int]*dblock.Locks
	hogs    map[int]*sql.Conn
}

// connect has the client's pool make its first connection before a scenario begins to count the
// time: on some machines a connect takes long. Where the server is away, the scenario goes on
// without it.
func (a *actor) connect() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*ttl)
	defer cancel()
	_ = a.client.CheckSchema(ctx)
}

// act is the main function of an actor.
func act(text string, in io.Reader, out io.Writer) int {
	a := &actor{
		reporter: newReporter(out), witness: newWitness(),
		handles: map[int]*handle{}, several: map[int]*dblock.Locks{},
		hogs: map[int]*sql.Conn{},
	}
	err := json.Unmarshal([]byte(text), &a.config)
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
	a.connect()
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
	case "lock":
		a.lock(c)
	case "lockall":
		a.lockAll(c)
	case "unlockall":
		a.unlockAll(c)
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
	case "share":
		a.share(c)
	case "resign":
		a.resign(c)
	case "observe":
		a.observe(c)
	case "work":
		a.crew = a.hire(c)
		a.report(event{What: evDone, Op: c.Op})
	case "pause":
		e := a.crew.pause()
		e.Op = c.Op
		a.report(e)
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
	if leaked := leftRunning(); err == nil {
		err = leaked
	}
	a.report(event{What: evDone, Op: c.Op}.with(err))
	return 0
}

// leftRunning is what a process that has closed everything has still running.
func leftRunning() error {
	return goleak.Find(
		goleak.IgnoreTopFunction("github.com/dblock-go/dblock/internal/testing/system/fault.(*witness).run"),
		// pgx takes up to 15 s for the end of a connection that a context has cut while the server
		// stood still.
		goleak.IgnoreAnyFunction("github.com/jackc/pgx/v5/pgconn.(*PgConn).asyncClose.func1"),
	)
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
	if bug := bugs[a.config.Bug]; bug != nil { // others are in what the actor does
		backend = fakedb.Hooked(backend, bug(a.db))
	}
	backend = a.careless(backend)
	r := &recorder{report: a.reporter, db: a.db, beats: a.config.Beats, sessions: map[string]bool{}}
	backend = fakedb.Hooked(backend, r.hook)
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	options := []dblock.Option{dblock.WithTTL(a.config.TTL), dblock.WithLogger(log)}
	if a.config.Deadlock != 0 {
		options = append(options, dblock.WithDeadlockCheck(a.config.Deadlock))
	}
	if a.config.Host != "" {
		options = append(options, dblock.WithHostFolder(a.config.Host))
	}
	if a.config.Reaper {
		options = append(options, dblock.WithReaper(reaper.Interval(reapInterval),
			reaper.OnReport(func(reaper.Report) {})))
	} else {
		options = append(options, dblock.WithoutReaper())
	}
	// The transactions of a caller are of no concern here, so that one type of client does for all
	// engines.
	c, err := dblock.New(fakedb.On[any](backend), options...)
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
