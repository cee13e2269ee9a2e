//go:build unix

package fault

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
)

// How money is moved.
const (
	schemeLockTx     = "LockTx"
	schemeGuard      = "Guard"
	schemeAdvisory   = "advisory"
	schemeOptimistic = "optimistic"
	// the server's own locks on a connection: they move no money, see the package's comment
	schemeSession = "session"
)

// books are the accounts that a scheme moves money between: LockTx and leases are the same locks,
// the others are not.
var books = map[string]string{schemeLockTx: "table", schemeGuard: "table", schemeAdvisory: "advisory",
	schemeOptimistic: "optimistic"}

// What a journal says of a transfer.
const (
	journalDone     = "done"     // its commit was acknowledged
	journalHeld     = "held"     // no transfer: a lock was held throughout, as was known afterwards
	journalRefused  = "refused"  // its lock was lost, so that it was rolled back
	journalConflict = "conflict" // it was tried again
	journalUnknown  = "unknown"  // its commit was answered with an error
	journalFailed   = "failed"   // nothing of it was sent to be committed
	journalWrong    = "wrong"    // something happened that must not: instead of an id, what
)

const accounts = 50

// tellerConfig makes an actor move money.
type tellerConfig struct {
	Label   string
	Journal string         // the file in which it says what became of each transfer
	Native  bool           // with pgx rather than database/sql
	Schemes map[string]int // how many workers for each
	Idle    time.Duration  // between two transfers, at most
	Instant time.Duration  // the work in a transaction, at most
	Realm   string         // in the names of locks that are the whole server's
	Bug     string         // one of the money bugs, "" for none
}

// entry is a line of a journal.
type entry struct {
	What, Scheme, ID string
	At               time.Duration
	From             time.Duration `json:",omitempty"` // of what was held
	Err              string        `json:",omitempty"`
}

type move struct {
	id, book string
	source   int
	target   int
	amount   int64
}

// names of both accounts, in the order in which everybody locks them.
func (m move) names() []string {
	names := []string{fmt.Sprintf("%s/%02d", m.book, m.source), fmt.Sprintf("%s/%02d", m.book, m.target)}
	slices.Sort(names)
	return names
}

// teller is a process that moves money.
type teller[TX any] struct {
	*desk[TX]
	config    tellerConfig
	journal   *json.Encoder // one write for each line, which the process may not survive but the line does
	mu        sync.Mutex    // protects journal
	dismissed atomic.Bool
	workers   sync.WaitGroup
	schemes   map[string]func(ctx context.Context, random *rand.Rand, m move) error
}

// tell is the main function of a process that moves money.
func (a *actor) tell(in io.Reader) int {
	var err error
	if a.config.Kind == dbtest.KindPostgres && a.config.Teller.Native {
		d, opened := pgxDesk(a.config)
		if err = opened; err == nil {
			err = serve(a, d, in)
		}
	} else {
		d, opened := sqlDesk(a.config)
		if err = opened; err == nil {
			err = serve(a, d, in)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// serve moves money until it is told to exit.
func serve[TX any](a *actor, d *desk[TX], in io.Reader) error {
	file, err := os.OpenFile(a.config.Teller.Journal, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	t := &teller[TX]{desk: d, config: *a.config.Teller, journal: json.NewEncoder(file)}
	t.schemes = map[string]func(context.Context, *rand.Rand, move) error{
		schemeLockTx: t.underLockTx, schemeGuard: t.underGuard, schemeAdvisory: t.underAdvisory,
		schemeOptimistic: t.underVersions, schemeSession: t.underSession,
	}
	worker := 0
	for _, scheme := range slices.Sorted(maps.Keys(t.config.Schemes)) {
		for range t.config.Schemes[scheme] {
			worker++
			prefix, random := fmt.Sprintf("%s.%d", t.config.Label, worker),
				rand.New(rand.NewPCG(a.config.Seed, uint64(worker)))
			t.workers.Go(func() { t.work(scheme, prefix, random) })
		}
	}
	a.report(event{What: evReady})
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var c command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return err
		}
		if c.Verb == "exit" {
			t.dismissed.Store(true)
			t.workers.Wait()
			err := t.close()
			if leaked := leftRunning(); err == nil {
				err = leaked
			}
			a.report(event{What: evDone, Op: c.Op}.with(err))
			return nil
		}
	}
	return nil
}

func (t *teller[TX]) log(what, scheme, id string, err error) {
	e := entry{What: what, Scheme: scheme, ID: id, At: session.Boottime()}
	if err != nil {
		e.Err = err.Error()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	_ = t.journal.Encode(e)
}

// held tells of a lock that was held from a time to before now.
func (t *teller[TX]) held(scheme, name string, from, to time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_ = t.journal.Encode(entry{What: journalHeld, Scheme: scheme, ID: name, From: from, At: to})
}

// wrong tells of what must not happen.
func (t *teller[TX]) wrong(scheme, format string, args ...any) {
	t.log(journalWrong, scheme, fmt.Sprintf(format, args...), nil)
}

// errNoTransfer is of a turn that moved nothing and was to move nothing.
var errNoTransfer = errors.New("no transfer")

func (t *teller[TX]) work(scheme, prefix string, random *rand.Rand) {
	for n := 1; !t.dismissed.Load(); n++ {
		linger(random, t.config.Idle)
		m := move{
			id: fmt.Sprintf("%s.%d", prefix, n), book: books[scheme],
			source: account(random), target: account(random), amount: 1 + random.Int64N(100),
		}
		if m.source == m.target {
			m.target = (m.target + 1) % accounts
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		err := t.schemes[scheme](ctx, random, m)
		if ctx.Err() != nil {
			t.wrong(scheme, "%s took longer than %v: %v", m.id, patience, err)
		}
		cancel()
		switch {
		case errors.Is(err, errNoTransfer):
		case err == nil:
			t.log(journalDone, scheme, m.id, err)
		case errors.Is(err, errUnknown):
			t.log(journalUnknown, scheme, m.id, err)
		case errors.Is(err, dblock.ErrLost):
			t.log(journalRefused, scheme, m.id, err)
		default:
			t.log(journalFailed, scheme, m.id, err)
			linger(random, 20*time.Millisecond)
		}
	}
}

// account is one of all, or rather often one of a few, for which they queue.
func account(random *rand.Rand) int {
	if random.IntN(3) == 0 {
		return random.IntN(4)
	}
	return random.IntN(accounts)
}

// linger is work, or the lack of it.
func linger(random *rand.Rand, upTo time.Duration) {
	<-time.After(time.Duration(random.Int64N(int64(upTo) + 1)))
}

// read is what a transfer decides by. Nothing here locks a row: all that keeps others away is the
// lock.
func (t *teller[TX]) read(ctx context.Context, tx TX, m move) (source, target int64, err error) {
	source, err = t.number(ctx, tx, fmt.Sprintf("SELECT balance FROM accounts WHERE book = '%s' AND id = %d", m.book,
		m.source))
	if err == nil {
		target, err = t.number(ctx, tx, fmt.Sprintf("SELECT balance FROM accounts WHERE book = '%s' AND id = %d",
			m.book, m.target))
	}
	return source, target, err
}

// write sets both balances to what was worked out, so that a stale one undoes what others did.
func (t *teller[TX]) write(ctx context.Context, tx TX, m move, source, target int64) error {
	statements := []string{
		fmt.Sprintf("UPDATE accounts SET balance = %d WHERE book = '%s' AND id = %d", source-m.amount, m.book,
			m.source),
		fmt.Sprintf("UPDATE accounts SET balance = %d WHERE book = '%s' AND id = %d", target+m.amount, m.book,
			m.target),
		fmt.Sprintf("INSERT INTO transfers (id, book, source, target, amount) VALUES ('%s', '%s', %d, %d, %d)", m.id,
			m.book, m.source, m.target, m.amount),
	}
	if m.source > m.target {
		statements[0], statements[1] = statements[1], statements[0]
	}
	for _, statement := range statements {
		if err := t.exec(ctx, tx, statement); err != nil {
			return err
		}
	}
	return nil
}
