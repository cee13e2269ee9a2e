package quorum

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
)

// world is some servers, processes that lock names on them, and a nemesis, in fake time.
type world struct {
	rng     *dice
	bugs    bugs
	servers []*server
	backups []data
	began   time.Time
	end     time.Time

	mu      sync.Mutex // protects what follows
	log     []string
	holders []holder
	highest map[string]int64
	got     int // locks
	crashes int
	faults  []string // violations
}

type holder struct {
	p    *process
	name string
	l    *Lock
	done bool
}

func newWorld(seed uint64, b bugs) *world {
	w := &world{
		rng: &dice{r: rand.New(rand.NewPCG(seed, 1))}, bugs: b, began: time.Now(), highest: map[string]int64{},
	}
	n := []int{3, 3, 5}[w.rng.n(3)]
	for range n {
		s := newServer(&w.bugs, w.rng.upTo(10*time.Minute))
		s.data.since, s.data.floor = time.Now().Add(-time.Hour), 1
		w.servers = append(w.servers, s)
		w.backups = append(w.backups, s.backup())
	}
	return w
}

// process makes a program.
func (w *world) process(id, fuse int, options ...Option) (*process, *Client) {
	p := &process{id: id, rng: w.rng, fuse: fuse}
	nodes := make([]Node, len(w.servers))
	for i, s := range w.servers {
		nodes[i] = Node{node: &peer{p: p, s: s}, ttl: fakeTTL}
	}
	c, err := New(nodes, append([]Option{
		WithNodeLimit(fakeLimit), WithQuarantine(fakeQuarantine), WithPatience(3 * time.Second),
		WithLogger(slog.New(slog.DiscardHandler)),
	}, options...)...)
	if err != nil {
		panic(err)
	}
	return p, c
}

// live is a process that locks and unlocks until it crashes. Then another one takes its place.
func (w *world) live(id int) {
	for n := 0; time.Now().Before(w.end); n++ {
		p, c := w.process(100*id+n, 20+w.rng.n(2000))
		for time.Now().Before(w.end) && !p.dead() {
			w.hold(p, c, w.name())
			time.Sleep(w.rng.upTo(300 * time.Millisecond))
		}
		if p.dead() {
			w.mu.Lock()
			w.crashes++
			w.mu.Unlock()
			time.Sleep(w.rng.upTo(time.Second))
			continue
		}
		if err := c.Close(context.Background()); err != nil {
			w.blame("Close: %v", err)
		}
		p.mu.Lock()
		p.crashed = true // its sessions end
		p.mu.Unlock()
	}
}

// name returns a contended name, or one that is seldom locked: nodes that had such a name may all
// be wiped before it is locked again.
func (w *world) name() string {
	if w.rng.n(2) == 0 {
		return "a"
	}
	return string(rune('b' + w.rng.n(12)))
}

func (w *world) hold(p *process, c *Client, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), w.rng.upTo(4*time.Second))
	defer cancel()
	began, stops := time.Now(), p.stopped()
	l, err := c.Lock(ctx, name)
	if err != nil {
		if took := time.Since(began); took > 4*time.Second+2*fakeLimit && p.stopped() == stops {
			w.blame("Lock failed after %v: %v", took, err)
		}
		return
	}
	i := w.granted(p, name, l)
	hold := w.rng.upTo(200 * time.Millisecond)
	if w.rng.n(10) == 0 {
		hold = w.rng.upTo(2 * fakeTTL)
	}
	select {
	case <-time.After(hold):
	case <-l.Context().Done():
	}
	w.mu.Lock()
	w.holders[i].done = true
	w.mu.Unlock()
	_ = l.Unlock(ctx)
}

// granted checks a lock against all before it.
func (w *world) granted(p *process, name string, l *Lock) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.holders {
		if h.name == name && !h.done && !h.p.dead() && h.l.Context().Err() == nil && !p.dead() &&
			l.Context().Err() == nil {
			w.fault("%d holds %s with token %d, and so does %d with %d", p.id, name, l.Token(), h.p.id, h.l.Token())
		}
	}
	if l.Token() <= w.highest[name] && !p.dead() {
		w.fault("%d holds %s with token %d after token %d", p.id, name, l.Token(), w.highest[name])
	}
	w.highest[name] = max(w.highest[name], l.Token())
	w.holders = append(w.holders, holder{p: p, name: name, l: l})
	w.got++
	w.note("%d got %s with token %d", p.id, name, l.Token())
	return len(w.holders) - 1
}

func (w *world) blame(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault(format, args...)
}

// haunt breaks and mends servers.
func (w *world) haunt() {
	for time.Now().Before(w.end) {
		time.Sleep(w.rng.upTo(3 * time.Second))
		i := w.rng.n(len(w.servers))
		s := w.servers[i]
		s.mu.Lock()
		switch w.rng.n(7) {
		case 0, 1:
			s.down, s.hangs = !s.down, w.rng.n(2) == 0
			w.tell("server %d down: %v", i, s.down)
		case 2:
			if w.mayForget(i) {
				s.wipe()
				s.offset, s.down = w.rng.upTo(10*time.Minute), false
				w.tell("server %d wiped, its clock is %v fast", i, s.offset)
			}
		case 3:
			if w.mayForget(i) {
				s.data, s.down = w.backups[i], false
				s.data.since, s.data.floor = time.Now(), 0 // Quarantine, before any client can reach it
				w.backups[i] = s.backup()
				w.tell("server %d restored", i)
			}
		case 4:
			w.backups[i] = s.backup()
			s.purge()
		case 5:
			s.slow = time.Duration(w.rng.n(2)) * w.rng.upTo(2*fakeLimit)
		case 6:
			s.offset += w.rng.upTo(5 * time.Second)
		}
		s.mu.Unlock()
	}
	for _, s := range w.servers {
		s.mu.Lock()
		s.down, s.slow = false, 0
		s.mu.Unlock()
	}
}

// mayForget keeps a majority that remembers. A server remembers again when it has been healed,
// whatever bugs it has.
func (w *world) mayForget(i int) bool {
	forgetful := 1
	for j, s := range w.servers {
		if j == i {
			continue
		}
		s.mu.Lock()
		m := s.memory()
		s.mu.Unlock()
		if m.age < fakeQuarantine || m.floor == 0 {
			forgetful++
		}
	}
	return forgetful <= len(w.servers)-majority(len(w.servers))
}

// run lives through some time, and then sees the quorum come back to life.
func (w *world) run() {
	w.end = time.Now().Add(time.Duration(30+w.rng.n(60)) * time.Second)
	var all sync.WaitGroup
	for id := range 2 + w.rng.n(3) {
		all.Go(func() { w.live(id + 1) })
	}
	w.haunt()
	all.Wait()
	w.recover()
}

func (w *world) recover() {
	p, c := w.process(9999, -1)
	ctx, cancel := context.WithTimeout(context.Background(), 4*fakeQuarantine)
	defer cancel()
	for {
		l, err := c.Lock(ctx, "a")
		if err == nil {
			w.granted(p, "a", l)
			_ = l.Unlock(ctx)
			break
		}
		if ctx.Err() != nil || !errors.Is(err, dblock.ErrUnavailable) {
			w.blame("the servers are up, and nobody gets the lock: %v", err)
			break
		}
	}
	_ = c.Close(context.Background())
	p.mu.Lock()
	p.crashed = true
	p.mu.Unlock()
}

// play runs one schedule.
func play(t *testing.T, seed uint64, b bugs) *world {
	var w *world
	synctest.Test(t, func(t *testing.T) {
		w = newWorld(seed, b)
		w.run()
		time.Sleep(time.Minute) // the sessions of dead processes end
	})
	return w
}

func (w *world) story() string { return strings.Join(w.log, "\n") }
