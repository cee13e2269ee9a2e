//go:build unix

package fault

import (
	"slices"
	"sync"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
)

// scenario is one thing that goes wrong, and what must come of it.
type scenario struct {
	name  string
	where int
	run   func(w *world)
}

// Where a scenario can be played.
const (
	anywhere = iota
	network  // not on SQLite, which has none
	sqliteOnly
	killable // where the server may be killed and stopped; alone, since it is others' server too
)

var scenarios = []scenario{
	{"a killed holder is succeeded, reaped", anywhere, func(w *world) { killedHolder(w) }},
	{"a killed holder is succeeded, no reaper anywhere", anywhere, func(w *world) { killedHolder(w, withoutReaper) }},
	{"a holder that is cut off stops believing before the next grant", network,
		func(w *world) { cutOffHolder(w, (*dbtest.Proxy).Cut) }},
	{"a holder whose network is frozen stops believing before the next grant", network,
		func(w *world) { cutOffHolder(w, (*dbtest.Proxy).Freeze) }},
	{"a stopped holder's token is refused", anywhere, stoppedHolder},
	{"a short stop loses nothing", anywhere, shortStop},
	{"processes are killed again and again", anywhere, churn},
	{"a file that another process writes to, shorter than TTL", sqliteOnly,
		func(w *world) { shortOutage(w, w.hogging()) }},
	{"a file that another process writes to, longer than TTL", sqliteOnly,
		func(w *world) { longOutage(w, w.hogging()) }},
	{"a process is killed in mid-write", sqliteOnly, killedInMidWrite},
	{"the server stands still, shorter than TTL", killable,
		func(w *world) { shortOutage(w, outage{w.server.Pause, w.server.Resume}) }},
	{"the server stands still, longer than TTL", killable,
		func(w *world) { longOutage(w, outage{w.server.Pause, w.server.Resume}) }},
	{"the server is killed under load", killable, serverKilled},
}

// atOnce is how many scenarios are played beside each other: mostly they wait.
const atOnce = 3

// scenariosRound plays some in an order of chance, for as long as there is time: each on a database
// of its own.
func scenariosRound(w *world) {
	var beside, alone []scenario
	for _, i := range w.random.Perm(len(scenarios)) {
		switch s := scenarios[i]; {
		case s.where == killable && w.server != nil:
			alone = append(alone, s)
		case s.where == anywhere, s.where == network && w.engine != dbtest.KindSQLite, s.where == sqliteOnly &&
			w.engine == dbtest.KindSQLite:
			beside = append(beside, s)
		}
	}
	most := int(w.length.Seconds()) * atOnce / 5 // a scenario takes some 5 s
	if w.bug != "" {
		beside, alone, most = slices.DeleteFunc(beside, func(s scenario) bool {
			return s.where != network || s.name[:8] != "a holder"
		}), nil, 1
	}
	play := func(s scenario) {
		w.Run(s.name, func(t *testing.T) {
			w.tried("scenarios", 1)
			s.run(newWorld(t, w.round, w.another(t)))
		})
	}
	var next sync.Mutex // protects beside
	var playing sync.WaitGroup
	beside = beside[:min(len(beside), max(most, 1))]
	for range atOnce {
		playing.Go(func() {
			for {
				next.Lock()
				if len(beside) == 0 {
					next.Unlock()
					return
				}
				s := beside[0]
				beside = beside[1:]
				next.Unlock()
				play(s)
			}
		})
	}
	playing.Wait()
	for _, s := range alone[:min(len(alone), max(most/6, 1))] {
		play(s)
	}
}
