//go:build unix

package fault

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/quorum"
)

const (
	realTTL        = time.Second
	realQuarantine = 2 * time.Second
	realLimit      = 300 * time.Millisecond
)

// bugForgetsWipe is of databases that were wiped and count all the same.
const bugForgetsWipe = "counts a wiped database at once"

// member is a database of a quorum: a file behind a gate, or one of a server behind a proxy.
type member interface {
	client() (*dblock.Client[any], func(), error)
	cut()
	slow()
	heal()
	wipe() error
	remembers(w *world) bool
}

// distant is a member on a server.
type distant struct {
	*dbtest.Proxy
	kind, dsn string
}

func (w *world) distant() member {
	w.Helper()
	db := w.another(w.T)
	require.NoError(w, remember(db.SQL(w)))
	proxy := dbtest.NewProxy(w, db.Addr(w))
	return &distant{proxy, db.Kind, db.Through(w, proxy).DSN}
}

func (d *distant) cut()                  { d.Cut() }
func (d *distant) slow()                 { d.Freeze() }
func (d *distant) heal()                 { d.Heal() }
func (d *distant) wipe() error           { d.Cut(); return nil } // files are wiped
func (d *distant) remembers(*world) bool { return true }
func (d *distant) client() (*dblock.Client[any], func(), error) {
	backend, closePool, err := openEngine(d.kind, d.dsn)
	if err != nil {
		return nil, nil, err
	}
	return memberOf(backend, closePool)
}

func memberOf(backend driver.Backend, closePool func()) (*dblock.Client[any], func(), error) {
	c, err := dblock.New(fakedb.On[any](backend), dblock.WithTTL(realTTL),
		dblock.WithLogger(slog.New(slog.DiscardHandler)))
	return c, closePool, err
}

// program has the clients of one process: one of each database, and one of the quorum.
func program(w *world, members []member, options ...quorum.Option) *quorum.Client {
	w.Helper()
	nodes := make([]quorum.Node, len(members))
	var closing []func(context.Context)
	for i, m := range members {
		client, closePool, err := m.client()
		require.NoError(w, err)
		closing = append(closing, func(ctx context.Context) {
			_ = client.Close(ctx) // a session's database may be gone
			closePool()
		})
		nodes[i] = quorum.On(client).Named(fmt.Sprint("member ", i))
	}
	c, err := quorum.New(nodes, append([]quorum.Option{
		quorum.WithNodeLimit(realLimit), quorum.WithQuarantine(realQuarantine),
		quorum.WithLogger(slog.New(slog.DiscardHandler)),
	}, options...)...)
	require.NoError(w, err)
	w.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		assert.NoError(w, c.Close(ctx))
		for _, f := range closing {
			f(ctx)
		}
	})
	return c
}

// record has all locks that were held. A lock is valid until its Until. Its context ends then too,
// but on a busy machine perhaps a moment later.
type record struct {
	*world

	mu    sync.Mutex // protects what follows
	holds []*hold
	valid map[*quorum.Lock]*hold
}

// newRecord is a record that is decided on at the end of the round.
func newRecord(w *world) *record {
	r := &record{world: w, valid: map[*quorum.Lock]*hold{}}
	w.Cleanup(func() { r.tell(exclusion, overlaps(r.holds)) })
	return r
}

func (r *record) granted(l *quorum.Lock) {
	now, at := time.Now(), session.Boottime()
	r.mu.Lock()
	defer r.mu.Unlock()
	for other, h := range r.valid {
		if other.Until().After(now) {
			h.end(at)
		} else {
			delete(r.valid, other)
		}
	}
	h := newHold("program", len(r.holds), l.Name(), portion{}, l.Token(), at, at)
	r.holds, r.valid[l] = append(r.holds, h), h
	r.tried("grants", 1)
}

// over is called before the release of a lock that is valid.
func (r *record) over(l *quorum.Lock) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.valid[l]; h != nil {
		h.end(session.Boottime())
		delete(r.valid, l)
	}
}

// work locks and unlocks until ctx ends.
func (r *record) work(ctx context.Context, c *quorum.Client, random *rand.Rand) {
	for ctx.Err() == nil {
		trying, cancel := context.WithTimeout(ctx, time.Second)
		l, err := c.Lock(trying, []string{"hot", "hot", "cold", fmt.Sprint("rare ", random.IntN(5))}[random.IntN(4)])
		cancel()
		if err != nil {
			continue
		}
		r.granted(l)
		hold := time.Duration(random.Int64N(int64(10 * time.Millisecond)))
		if random.IntN(20) == 0 {
			hold = time.Duration(random.Int64N(int64(2 * realTTL)))
		}
		select {
		case <-time.After(hold):
		case <-ctx.Done():
		case <-l.Context().Done():
		}
		if l.Context().Err() == nil {
			r.over(l)
		}
		_ = l.Unlock(ctx)
	}
}

// plague kills, stops and wipes a minority.
func plague(w *world, members []member) {
	hurt := map[int]time.Duration{} // by member: until when
	for end := session.Boottime() + w.length; session.Boottime() < end; {
		pass(200 * time.Millisecond)
		i, what, until := w.random.IntN(len(members)), w.random.IntN(3),
			time.Duration(w.random.Int64N(int64(2*realTTL)))
		for i, until := range hurt {
			if session.Boottime() > until {
				members[i].heal()
				delete(hurt, i)
			}
		}
		forgetful := 0
		for i, m := range members {
			if _, broken := hurt[i]; broken || !m.remembers(w) {
				forgetful++
			}
		}
		if w.bug == bugForgetsWipe { // the majority
			for _, m := range members[:len(members)/2+1] {
				require.NoError(w, m.wipe())
			}
			continue
		}
		if _, broken := hurt[i]; broken || forgetful >= (len(members)-1)/2 {
			continue
		}
		hurt[i] = session.Boottime() + until
		w.tried([]string{"cuts", "stops", "wipes"}[what], 1)
		switch what {
		case 0:
			members[i].cut()
		case 1:
			members[i].slow()
		case 2:
			require.NoError(w, members[i].wipe())
		}
	}
	for _, m := range members {
		m.heal()
	}
}

// quorumRound has three programs contend over five files, or over three databases of a server, of
// which a minority is killed, stopped or wiped.
func quorumRound(w *world) {
	var members []member
	if w.engine == dbtest.KindSQLite {
		for _, g := range newGates(w, 5) {
			g.lies = w.bug == bugForgetsWipe
			members = append(members, g)
		}
	} else {
		members = []member{w.distant(), w.distant(), w.distant()}
	}
	r := newRecord(w)
	ctx, cancel := context.WithCancel(w.Context())
	defer cancel()
	var work sync.WaitGroup
	var programs []*quorum.Client
	for i := range 3 {
		c, random := program(w, members), rand.New(rand.NewPCG(w.seed, uint64(i)))
		programs = append(programs, c)
		work.Go(func() { r.work(ctx, c, random) })
	}
	plague(w, members)
	cancel()
	work.Wait()
	r.recovers(programs[0], "hot")
}

// recovers fails where nobody gets a lock when all databases are up again. On a loaded machine a
// node may take longer than its limit for an answer.
func (r *record) recovers(c *quorum.Client, name string) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	l, err := c.Lock(ctx, name)
	for errors.Is(err, dblock.ErrUnavailable) && ctx.Err() == nil {
		l, err = c.Lock(ctx, name)
	}
	require.NoError(r, err, "all are up again, and nobody gets the lock")
	r.granted(l)
	if err := l.Unlock(ctx); err != nil && !errors.Is(err, dblock.ErrLost) {
		r.Error(err)
	}
}

// schedulesRound runs the simulated world of package quorum, with crashes between any two steps.
func schedulesRound(w *world) {
	n := max(20, int(w.length.Seconds()*15))
	out, err := exec.CommandContext(w.Context(), *soakQuorum, "-test.run=TestTokensRise", "-test.v", "-test.timeout=1h",
		fmt.Sprint("-schedules=", n), fmt.Sprint("-seed=", w.random.Uint64N(1<<62))).CombinedOutput()
	require.NoError(w, err, out)
	w.tried("schedules", n)
	if _, after, ok := strings.Cut(string(out), "model_test.go:"); ok {
		var line, locks, crashes int
		_, _ = fmt.Sscanf(after, "%d: %d locks, %d crashes", &line, &locks, &crashes)
		w.tried("grants", locks)
		w.tried("crashes", crashes)
	}
}
