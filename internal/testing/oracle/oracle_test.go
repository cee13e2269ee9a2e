package oracle_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/memory"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/oracle"
)

// double is an engine in memory, with short ways that may be wrong.
type double struct {
	memory.Names
	ends map[string]int64 // of sessions
	told func(session string, h protocol.Hint)

	take   func(n *protocol.Name, r protocol.Request, g protocol.Grant)
	join   func(n *protocol.Name)
	remove func(result *protocol.Result)
	change func(n *protocol.Name, before protocol.Row)
	hears  bool
}

func newDouble() *double {
	d := &double{ends: map[string]int64{}, hears: true}
	d.Now = func() int64 { return time.Now().UnixMicro() }
	d.Alive = func(session string) bool { return d.ends[session] > d.Now() }
	d.Expire = func(session string) bool { return !d.Alive(session) }
	return d
}

func (d *double) OpenSession(_ context.Context, s driver.Session) error {
	d.ends[s.ID] = d.Now() + s.TTL.Microseconds()
	return nil
}

func (d *double) EndSession(_ context.Context, session string, _ bool) error {
	delete(d.ends, session)
	return nil
}

// hearing is a connection that only listens.
type hearing struct {
	driver.Upkeep
	*double
}

func (d *double) Upkeep(context.Context, string) (driver.Upkeep, error) {
	return hearing{double: d}, nil
}

func (hearing) Close() error { return nil }

func (d hearing) Listen(ctx context.Context, session string, ready func(), wake func(protocol.Hint)) error {
	before := d.told
	d.told = func(to string, h protocol.Hint) {
		if before != nil {
			before(to, h)
		}
		if to == session {
			wake(h)
		}
	}
	ready()
	<-ctx.Done()
	return ctx.Err()
}

func (d *double) Run(_ context.Context, ops ...protocol.Op) ([]protocol.Result, error) {
	results := make([]protocol.Result, len(ops))
	for i, op := range protocol.Together(ops) {
		result, changes, err := d.Names.Apply(faulty{op, d})
		if err != nil {
			return nil, err
		}
		if d.hears {
			for _, t := range changes.Notices {
				d.told(t.Session, t.Hint)
			}
		}
		results[i] = result
	}
	return results, nil
}

// faulty is an op as the double runs it.
type faulty struct {
	protocol.Op
	d *double
}

func (f faulty) Apply(n *protocol.Name) (protocol.Result, error) {
	before := n.Row
	result, err := f.Op.Apply(n)
	switch op := f.Op.(type) {
	case protocol.Take:
		if f.d.take != nil && result.Done() {
			f.d.take(n, op.Request, result.Grant)
		}
	case protocol.Join:
		if f.d.join != nil && result.Outcome == protocol.Queued && result.Ahead == 0 {
			f.d.join(n)
		}
	case protocol.Removal:
		if f.d.remove != nil {
			f.d.remove(&result)
		}
	}
	if f.d.change != nil {
		f.d.change(n, before)
	}
	return result, err
}

func TestTheProtocolIsWhatTheProtocolDoes(t *testing.T) {
	for seed := range uint64(4) {
		oracle.Compare(t, newDouble(), seed, 300)
	}
}

// recorder is a test that fails without failing this one.
type recorder struct {
	*testing.T
	failed string
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failed = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// Each fault is one that a short way might have.
func TestAWrongShortWayIsSeen(t *testing.T) {
	for name, fault := range map[string]func(d *double){
		"a token below the clock": func(d *double) {
			d.take = func(n *protocol.Name, _ protocol.Request, _ protocol.Grant) { n.First, n.Last, n.Token = 7, 7, 7 }
		},
		"a token given twice": func(d *double) {
			last := map[string]int64{}
			d.take = func(n *protocol.Name, r protocol.Request, g protocol.Grant) {
				if before := last[r.Name]; before != 0 && r.Units == 0 {
					n.First, n.Last, n.Token = before, before, before
				}
				last[r.Name] = g.Token
			}
		},
		"a cohort of one": func(d *double) {
			d.take = func(n *protocol.Name, r protocol.Request, _ protocol.Grant) {
				if r.Members > 1 {
					n.Last, n.Token = n.First, n.First
				}
			}
		},
		"a lease forgotten": func(d *double) {
			d.take = func(n *protocol.Name, _ protocol.Request, _ protocol.Grant) { n.Ends = 0 }
		},
		"a rest forgotten": func(d *double) {
			d.take = func(n *protocol.Name, _ protocol.Request, _ protocol.Grant) { n.Rests = 0 }
		},
		"a place that counts once": func(d *double) {
			d.join = func(n *protocol.Name) {
				for _, p := range n.PutPlaces {
					n.Waiters -= max(p.Members, 1) - 1
				}
			}
		},
		"a place at the head": func(d *double) {
			d.join = func(n *protocol.Name) { n.Head--; n.PutPlaces[0].Ticket = n.Head }
		},
		"a capacity forgotten":            func(d *double) { d.join = func(n *protocol.Name) { n.Capacity = 0 } },
		"a head that passes over a place": func(d *double) { d.join = func(n *protocol.Name) { n.Head = n.Next } },
		"waiters left behind": func(d *double) {
			d.remove = func(result *protocol.Result) { result.Next = nil }
		},
		"a denial": func(d *double) {
			d.remove = func(result *protocol.Result) { result.Outcome = protocol.Undone }
		},
		"a lock that moves, and keeps its attempt": func(d *double) {
			d.change = func(n *protocol.Name, before protocol.Row) {
				if n.Last == before.Last && n.Session != "" && n.Session != before.Session {
					n.Attempt = before.Attempt
				}
			}
		},
		"silence": func(d *double) { d.hears = false },
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			for seed := range uint64(24) {
				r := &recorder{T: t}
				d := newDouble()
				fault(d)
				done := make(chan struct{})
				go func() {
					defer close(done)
					oracle.Compare(r, d, seed, 200)
				}()
				if <-done; r.failed != "" {
					return
				}
			}
			t.Error("nothing was seen")
		})
	}
}
