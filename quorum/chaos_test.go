package quorum

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/sqlite"
)

const (
	realTTL        = time.Second
	realQuarantine = 2 * time.Second
	realLimit      = 300 * time.Millisecond
)

// program has the clients of one process: one of each database, and one of the quorum.
type program struct {
	quorum  *Client
	links   []*link
	clients []*dblock.Client[*sql.Tx]
	pools   []*sql.DB
}

func newProgram(t *testing.T, gates []*gate, options ...Option) *program {
	t.Helper()
	p := &program{}
	nodes := make([]Node, len(gates))
	for i, g := range gates {
		l := &link{g: g}
		pool := sql.OpenDB(l)
		client, err := dblock.New(sqlite.New(pool), dblock.WithTTL(realTTL), dblock.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		p.links, p.pools, p.clients = append(p.links, l), append(p.pools, pool), append(p.clients, client)
		nodes[i] = On(client).Named(fmt.Sprint("gate ", i))
	}
	c, err := New(nodes, append([]Option{WithNodeLimit(realLimit), WithQuarantine(realQuarantine), WithLogger(slog.New(slog.DiscardHandler))}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	p.quorum = c
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
		for i, client := range p.clients {
			_ = client.Close(ctx) // a session's database may be gone
			_ = p.pools[i].Close()
		}
	})
	return p
}

func (p *program) cut(cut bool) {
	for _, l := range p.links {
		l.set(cut)
	}
}

// record has all locks that were held. A lock is valid until its Until. Its context ends then too,
// but on a busy machine perhaps a moment later.
type record struct {
	t *testing.T

	mu      sync.Mutex // protects what follows
	highest map[string]int64
	valid   map[string][]*Lock
	locks   int
}

func (r *record) granted(l *Lock) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.Token() <= r.highest[l.Name()] {
		r.t.Errorf("%s: token %d after %d", l.Name(), l.Token(), r.highest[l.Name()])
	}
	r.highest[l.Name()] = l.Token()
	for _, other := range r.valid[l.Name()] {
		if other.Until().After(now) && l.Until().After(now) {
			r.t.Errorf("%s: token %d is valid, and so is %d", l.Name(), l.Token(), other.Token())
		}
	}
	r.valid[l.Name()] = append(r.valid[l.Name()], l)
	r.locks++
}

func (r *record) over(l *Lock) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.valid[l.Name()] = nil
}

// work locks and unlocks until ctx ends.
func (r *record) work(ctx context.Context, p *program) {
	for ctx.Err() == nil {
		trying, cancel := context.WithTimeout(ctx, time.Second)
		l, err := p.quorum.Lock(trying, []string{"hot", "hot", "cold", fmt.Sprint("rare ", rand.N(5))}[rand.N(4)])
		cancel()
		if err != nil {
			continue
		}
		r.granted(l)
		hold := rand.N(10 * time.Millisecond)
		if rand.N(20) == 0 {
			hold = rand.N(2 * realTTL)
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

// nemesis kills, stops and wipes a minority, and cuts off processes, until ctx ends.
func nemesis(ctx context.Context, t *testing.T, gates []*gate, programs []*program) (faults int) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	hurt := map[int]time.Time{} // by gate: until when
	for {
		select {
		case <-ctx.Done():
			for _, g := range gates {
				g.set(false, 0)
			}
			for _, p := range programs {
				p.cut(false)
			}
			return faults
		case <-tick.C:
		}
		for i, until := range hurt {
			if time.Now().After(until) {
				gates[i].set(false, 0)
				delete(hurt, i)
			}
		}
		forgetful := 0
		for i, g := range gates {
			if _, broken := hurt[i]; broken || !g.remembers(t, realQuarantine) {
				forgetful++
			}
		}
		p, i := programs[rand.N(len(programs))], rand.N(len(gates))
		p.cut(rand.N(8) == 0)
		if _, broken := hurt[i]; broken || forgetful > len(gates)-majority(len(gates))-1 {
			continue
		}
		faults++
		hurt[i] = time.Now().Add(rand.N(2 * realTTL))
		switch rand.N(3) {
		case 0:
			gates[i].set(true, 0)
		case 1:
			gates[i].set(false, 2*realLimit)
		case 2:
			if err := gates[i].wipe(); err != nil {
				t.Error(err)
			}
		}
	}
}

func chaosTime(t *testing.T) time.Duration {
	text := os.Getenv("DBLOCK_TEST_CHAOS")
	if text == "" {
		return 2 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestFiveDatabasesThatAreKilledStoppedAndWiped(t *testing.T) {
	gates := newGates(t, 5)
	var programs []*program
	for range 3 {
		programs = append(programs, newProgram(t, gates))
	}
	r := &record{t: t, highest: map[string]int64{}, valid: map[string][]*Lock{}}
	ctx, cancel := context.WithTimeout(t.Context(), chaosTime(t))
	defer cancel()
	var work sync.WaitGroup
	for _, p := range programs {
		work.Go(func() { r.work(ctx, p) })
	}
	faults := nemesis(ctx, t, gates, programs)
	work.Wait()
	t.Logf("%d locks, %d faults", r.locks, faults)
	after, cancel := context.WithTimeout(t.Context(), 20*realTTL)
	defer cancel()
	l, err := programs[0].quorum.Lock(after, "hot")
	if err != nil {
		t.Fatalf("all are up again, and nobody gets the lock: %v", err)
	}
	r.granted(l)
	if err := l.Unlock(after); err != nil && !errors.Is(err, dblock.ErrLost) {
		t.Error(err)
	}
}

func TestTheMajorityOfRealDatabasesGoesAndComesBack(t *testing.T) {
	gates := newGates(t, 3)
	p := newProgram(t, gates, WithPatience(realLimit))
	r := &record{t: t, highest: map[string]int64{}, valid: map[string][]*Lock{}}
	first, err := p.quorum.Lock(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	r.granted(first)
	gates[0].set(true, 0)
	gates[1].set(true, 0)
	select {
	case <-first.Context().Done():
	case <-time.After(10 * realTTL):
		t.Fatal("the lock is not lost")
	}
	began := time.Now()
	_, err = p.quorum.Lock(t.Context(), "n")
	if took := time.Since(began); !errors.Is(err, dblock.ErrUnavailable) || took > 5*time.Second {
		t.Errorf("after %v: %v", took, err)
	}
	gates[0].set(false, 0)
	ctx, cancel := context.WithTimeout(t.Context(), 20*realTTL)
	defer cancel()
	second, err := p.quorum.Lock(ctx, "n")
	if err != nil {
		t.Fatal(err)
	}
	r.granted(second)
	if err := second.Unlock(ctx); err != nil && !errors.Is(err, dblock.ErrLost) {
		t.Error(err)
	}
	gates[1].set(false, 0)
	if err := first.Unlock(ctx); !errors.Is(err, dblock.ErrLost) {
		t.Error(err)
	}
}
