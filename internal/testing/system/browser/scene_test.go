package browser

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/dblock-go/dblock/dblockweb"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/jobs"
)

// scene is a database as pictures show it, at a moment.
type scene struct {
	dblockweb.Source // nil: what it has beyond these is not called
	now              time.Time
	infos            []inspect.Info
	events           []inspect.Event
	runs             map[string][]jobs.Run
}

func newScene(long string) *scene {
	s := &scene{now: time.Now(), runs: map[string][]jobs.Run{}}
	token := int64(1795420000000000)
	holder := func(host, thread, app string, pid int, ago time.Duration) inspect.Participant {
		token += 7
		return inspect.Participant{
			Host: host, Thread: thread, App: app, PID: pid, Session: session(host), Token: token,
			Since: s.now.Add(-ago), Until: s.now.Add(13 * time.Second), Alive: true,
		}
	}
	waiter := func(host, thread, app string, pid int, ago time.Duration) inspect.Participant {
		p := holder(host, thread, app, pid, ago)
		p.Token = 0
		return p
	}
	add := func(name string, capacity int, holders, waiters []inspect.Participant) {
		i := inspect.Info{Name: name, Capacity: capacity, Holders: holders, Waiters: waiters, Queued: len(waiters)}
		for _, h := range holders {
			i.Token = max(i.Token, h.Token)
		}
		s.infos = append(s.infos, i)
	}
	ship := holder("app-2", "ship-7", "shipping", 4102, 3*time.Minute+12*time.Second)
	ship.Metadata = map[string]string{"order": "4711", "step": "label"}
	ship.Asked = "alice: deployment at 14:00"
	invoice := holder("app-3", "invoice-2", "billing", 2231, 9*time.Minute+40*time.Second)
	blocked := ship
	blocked.Token, blocked.Since = 0, s.now.Add(-2*time.Minute)
	add("orders/4711", 0, []inspect.Participant{ship}, []inspect.Participant{
		waiter("app-1", "refund-1", "orders", 3310, 2*time.Minute+50*time.Second), waiter("app-4", "ship-2", "shipping",
			4188, 95*time.Second),
		waiter("app-1", "refund-9", "orders", 3310, 41*time.Second), waiter("app-2", "audit-1", "audit", 977,
			8*time.Second),
	})
	add("tenant/17/invoices", 0, []inspect.Participant{invoice}, []inspect.Participant{blocked})
	exports := []inspect.Participant{holder("app-1", "export-1", "reports", 811, 14*time.Minute),
		holder("app-3", "export-4", "reports", 1290, 2*time.Minute)}
	exports[0].Permits, exports[0].Shared, exports[1].Permits, exports[1].Shared = 2, true, 1, true
	want := waiter("app-4", "export-2", "reports", 640, 30*time.Second)
	want.Permits, want.Shared = 2, true
	add("export", 4, exports, []inspect.Participant{want})
	leader := holder("app-1", "", "indexer", 515, 31*time.Hour)
	standbys := []inspect.Participant{waiter("app-2", "", "indexer", 519, 30*time.Hour),
		waiter("app-3", "", "indexer", 702, 30*time.Hour)}
	standbys[0].Candidate, standbys[1].Candidate = true, true
	add("indexer", 0, []inspect.Participant{leader}, standbys)
	for i, name := range []string{"backup/eu", "cache/warm", "import/2026-11-23", "migrate", "tenant/3/close",
		"tenant/8/close"} {
		add(name, 0, []inspect.Participant{holder(fmt.Sprintf("app-%d", i%4+1), fmt.Sprintf("worker-%d", i), "orders",
			3310+i, time.Duration(i*i+1)*47*time.Second)}, nil)
	}
	s.infos[len(s.infos)-3].Holders[0].Alive = false
	if long != "" {
		add(long, 0, []inspect.Participant{holder(long, long, long, 1, time.Minute)},
			[]inspect.Participant{waiter(long, long, long, 2, time.Second)})
		s.infos[len(s.infos)-1].Holders[0].Metadata = map[string]string{long: long}
	}
	event := func(ago time.Duration, name, kind, host, thread, detail string, token int64) {
		s.events = append(s.events, inspect.Event{
			ID: int64(9000 - len(s.events)), At: s.now.Add(-ago), Name: name, Kind: kind, Host: host, Thread: thread,
			Detail: detail, Token: token,
		})
	}
	event(40*time.Second, "orders/4711", "asked", "admin-1", "", "alice: deployment at 14:00", 0)
	event(3*time.Minute+12*time.Second, "orders/4711", "granted", "app-2", "ship-7", "", ship.Token)
	event(3*time.Minute+12*time.Second, "orders/4711", "released", "app-1", "refund-4", "", ship.Token-21)
	event(11*time.Minute, "orders/4711", "granted", "app-1", "refund-4", "", ship.Token-21)
	event(12*time.Minute, "tenant/8/close", "broken", "admin-1", "", "alice: host is gone, ticket 123", ship.Token-28)
	event(25*time.Minute, "backup/eu", "expired", "app-4", "worker-9", "", ship.Token-35)
	event(31*time.Hour, "indexer", "elected", "app-1", "", "", leader.Token)
	event(31*time.Hour, "indexer", "resigned", "app-2", "", "", leader.Token-7)
	event(80*time.Hour, "indexer", "elected", "app-2", "", "", leader.Token-7)
	if long != "" {
		event(time.Hour, long, "elected", long, long, long, 7)
	}
	s.job("backup/eu", time.Hour, "app-4", 41, 12, 13)
	s.job("report/daily", 24*time.Hour, "app-1", 3)
	s.job("rates", time.Minute, "app-2", 20, 21, 22, 40)
	if long != "" {
		s.job(long, time.Hour, long, 7)
	}
	return s
}

// session is the ID of a host's session.
func session(host string) string {
	return strings.ToUpper(fmt.Sprintf("%.6s7QWERTZUIOPASDFGHJKLYXCV", host))
}

// job adds 70 slots of a job. Those that are so many slots ago failed, if they are even, or are
// missed.
func (s *scene) job(name string, every time.Duration, host string, odd ...int64) {
	present := s.now.UnixMicro() / every.Microseconds()
	for ago := int64(0); ago < 70; ago++ {
		begins := time.UnixMicro((present - ago) * every.Microseconds())
		r := jobs.Run{
			Name: name, Slot: present - ago, SlotBegins: begins, SlotEnds: begins.Add(every),
			Token: 1795420000000000 - ago, Host: host, Thread: "cron", Tries: 1,
			Began: begins.Add(every / 60), Ended: begins.Add(every/60 + every/40),
		}
		if slices.Contains(odd, ago) {
			if ago%2 == 1 {
				continue
			}
			r.Err = "the disk is full"
		}
		s.runs[name] = append(s.runs[name], r)
	}
}

func all[T any](list []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, one := range list {
			if !yield(one, nil) {
				return
			}
		}
	}
}

func (s *scene) List(_ context.Context, f inspect.Filter) iter.Seq2[inspect.Info, error] {
	return all(slices.DeleteFunc(slices.Clone(s.infos), func(i inspect.Info) bool {
		return f.Contended && (i.Queued == 0 || i.Waiters[0].Candidate) || !strings.HasPrefix(i.Name, f.Prefix)
	}))
}

func (s *scene) Lock(_ context.Context, name string) (inspect.Info, error) {
	for _, i := range s.infos {
		if i.Name == name {
			return i, nil
		}
	}
	return inspect.Info{Name: name}, nil
}

func (s *scene) Why(ctx context.Context, name string) ([]inspect.Info, error) {
	info, err := s.Lock(ctx, name)
	if name != "orders/4711" {
		return []inspect.Info{info}, err
	}
	return []inspect.Info{info, s.infos[1]}, err
}

func (s *scene) Watch(ctx context.Context, name string) iter.Seq2[inspect.Info, error] {
	return func(yield func(inspect.Info, error) bool) {
		<-ctx.Done()
		yield(inspect.Info{}, ctx.Err())
	}
}

func (s *scene) Events(_ context.Context, f inspect.EventFilter) iter.Seq2[inspect.Event, error] {
	return all(slices.DeleteFunc(slices.Clone(s.events), func(e inspect.Event) bool {
		return f.Name != "" && e.Name != f.Name || len(f.Kinds) > 0 && !slices.Contains(f.Kinds, e.Kind)
	}))
}

func (s *scene) Sessions(context.Context, inspect.SessionFilter) iter.Seq2[inspect.Session, error] {
	var list []inspect.Session
	for i, app := range []string{"orders", "shipping", "billing", "reports", "audit", "indexer"} {
		host := fmt.Sprintf("app-%d", i%4+1)
		list = append(list, inspect.Session{
			ID: session(host), Host: host, App: app, PID: 3310 + 17*i,
			Started: s.now.Add(-time.Duration(i*i+2) * time.Hour), Until: s.now.Add(13 * time.Second), Alive: i != 4,
			Held: 5 - i/2, Waiting: i % 3,
		})
	}
	return all(list)
}

func (s *scene) Jobs(context.Context) iter.Seq2[jobs.Run, error] {
	var list []jobs.Run
	for _, runs := range s.runs {
		list = append(list, runs[0])
	}
	slices.SortFunc(list, func(a, b jobs.Run) int { return strings.Compare(a.Name, b.Name) })
	return all(list)
}

func (s *scene) Runs(_ context.Context, name string) iter.Seq2[jobs.Run, error] {
	return all(s.runs[name])
}
