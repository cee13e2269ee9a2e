//go:build unix

package fault

import (
	"cmp"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
)

// The flags of scripts/soak.
var (
	soakTime = flag.Duration("soak", 0, "soak each engine for so long")
	soakSeed = flag.Uint64("seed", rand.Uint64N(1e6),
		"the first round's plan of faults; each later round has the next")
	soakKind   = flag.String("kind", "", "these kinds only, with commas between them")
	soakEngine = flag.String("engine", "sqlite,postgres,mariadb", "on these, with commas between them")
	soakBugs   = flag.Bool("bugs", false, "seed bugs instead of faults, and fail where one is not found")
	soakFee    = flag.String("fee", "", "the program of examples/fee")
	soakQuorum = flag.String("quorum", "", "the test binary of package quorum")
)

// kind is one way to torment locks.
type kind struct {
	name    string
	share   int            // of an engine's time
	engines []string       // nil: all
	run     func(w *world) // one round, which ends some time after w.length
	empty   bool           // begins without tables
}

var kinds = []kind{
	{name: "history", share: 3, run: historyRound},
	{name: "election", share: 2, run: electionRound},
	{name: "shares", share: 2, run: sharesRound},
	{name: "crash", share: 2, run: crashRound},
	{name: "scenarios", share: 5, run: scenariosRound},
	{name: "application", share: 4, run: applicationRound},
	{name: "ring", share: 1, run: ringRound},
	{name: "once", share: 1, run: onceRound},
	{name: "quorum", share: 2, run: quorumRound},
	{name: "migrations", share: 1, run: migrationsRound, empty: true},
	{name: "fee", share: 1, run: feeRound, empty: true},
	{name: "schedules", share: 1, engines: []string{dbtest.KindSQLite}, run: schedulesRound},
}

// round is what a round is told, and what comes of it.
type round struct {
	kind, engine string
	seed         uint64
	random       *rand.Rand     // the plan of faults: only the goroutine of the round asks it
	length       time.Duration  // for how long it makes trouble
	server       *dbtest.Server // nil: none, or one that must not be killed
	bug          string         // "": none
	empty        bool           // databases have no tables

	*tally
}

// tally is of all rounds of a kind on an engine.
type tally struct {
	mu         sync.Mutex // protects what follows
	counts     map[string]int
	delays     []time.Duration // until the locks of a killed process moved
	violations []string
}

func (r *tally) tried(what string, times int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[what] += times
}

func (r *tally) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.violations)
}

func (r *tally) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var text []string
	for _, what := range slices.SortedFunc(maps.Keys(r.counts),
		func(a, b string) int { return cmp.Or(r.counts[b]-r.counts[a], cmp.Compare(a, b)) }) {
		text = append(text, fmt.Sprintf("%d %s", r.counts[what], what))
	}
	if n := len(r.delays); n > 0 {
		slices.Sort(r.delays)
		text = append(text, fmt.Sprintf("median %v, longest %v", r.delays[n/2], r.delays[n-1]))
	}
	return strings.Join(text, ", ")
}

func (r *round) violation(t *testing.T, text string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.violations = append(r.violations, text)
	if r.bug != "" {
		t.Log(text)
		return
	}
	t.Error(text)
	if len(r.violations) == 1 {
		fmt.Printf("%s\n  once more: scripts/soak -seed %d -kind %s -engine %s\n", text, r.seed, r.kind, r.engine)
	}
}

// newRound makes the same plan for the same seed, kind and engine.
func newRound(
	k kind, engine string, seed uint64, server *dbtest.Server, length time.Duration, bug string, sum *tally,
) *round {
	hash := fnv.New64()
	_, _ = hash.Write([]byte(k.name + engine))
	return &round{
		kind: k.name, engine: engine, seed: seed, random: rand.New(rand.NewPCG(seed, hash.Sum64())),
		length: length, server: server, bug: bug, tally: sum,
	}
}

// play is one round on a database of its own.
func (k kind) play(t *testing.T, r *round) {
	if r.empty = k.empty; r.empty {
		k.run(&world{T: t, round: r, db: r.another(t)})
		return
	}
	k.run(newWorld(t, r, r.another(t)))
}

// another is a fresh database.
func (r *round) another(t *testing.T) dbtest.Database {
	t.Helper()
	server, err := r.server, error(nil)
	if server == nil {
		if server, err = dbtest.Find(r.engine); err != nil {
			t.Fatal(err)
		}
	}
	if r.empty {
		return server.Empty(t)
	}
	return server.Database(t)
}

// chosen reports whether a list has a word, or nothing.
func chosen(list, word string) bool {
	return list == "" || slices.Contains(strings.Split(list, ","), word)
}

// ownServer is one that may be killed; nil: SQLite has none, and a DSN names one that others use.
func ownServer(t *testing.T, engine string) *dbtest.Server {
	t.Helper()
	if engine == dbtest.KindSQLite || os.Getenv("DBLOCK_TEST_"+strings.ToUpper(engine)+"_DSN") != "" {
		return nil
	}
	return dbtest.Own(t, engine)
}

// TestSoak goes through the engines and their kinds one after the other: beside each other they
// would starve, and a process that starves is not what a scenario is about.
func TestSoak(t *testing.T) {
	if *soakTime == 0 {
		t.Skip("this is scripts/soak")
	}
	for engine := range strings.SplitSeq(*soakEngine, ",") {
		t.Run(engine, func(t *testing.T) {
			began, server := time.Now(), ownServer(t, engine)
			var mine []kind
			rest := 0
			for _, k := range kinds {
				if chosen(*soakKind, k.name) && (k.engines == nil || slices.Contains(k.engines, engine)) {
					mine, rest = append(mine, k), rest+k.share
				}
			}
			for _, k := range mine {
				length := (*soakTime - time.Since(began)) * time.Duration(k.share) / time.Duration(rest)
				rest -= k.share
				k.soak(t, engine, server, max(length, ttl))
			}
		})
	}
}

// lines are what was done and found: one line for each kind and engine.
var lines struct {
	sync.Mutex
	n, violations int
}

// longest is how long a round goes on, so that a long soak has many plans of faults.
const longest = 30 * time.Second

// soak runs rounds until the time is over, and at least one.
func (k kind) soak(t *testing.T, engine string, server *dbtest.Server, length time.Duration) {
	began, sum := time.Now(), &tally{counts: map[string]int{}}
	n := uint64(0)
	for sound := true; sound && (n == 0 || time.Since(began) < length*9/10); n++ {
		r := newRound(k, engine, *soakSeed+n, server, min(longest, length-time.Since(began)), "", sum)
		sound = t.Run(fmt.Sprintf("%s/%d", k.name, r.seed), func(t *testing.T) { k.play(t, r) })
		if !sound && len(sum.all()) == 0 {
			sum.violations = append(sum.violations, "the round failed")
		}
	}
	lines.Lock()
	defer lines.Unlock()
	lines.n++
	lines.violations += len(sum.violations)
	fmt.Printf("%-8s %-10s %4.0f s, %d rounds: %s; violations: %d\n", engine, k.name, time.Since(began).Seconds(), n,
		sum, len(sum.violations))
}

// bugLimit is in what time a seeded bug has to be found.
const bugLimit = 90 * time.Second

// TestBugs seeds bugs, one at a time, in what a kind torments. Violations that name the bug must be
// found.
func TestBugs(t *testing.T) {
	if !*soakBugs {
		t.Skip("this is scripts/soak -bugs")
	}
	engine, _, _ := strings.Cut(*soakEngine, ",")
	if strings.Contains(*soakEngine, dbtest.KindPostgres) {
		engine = dbtest.KindPostgres // it gets more done in the same time than SQLite
	}
	server := ownServer(t, engine)
	var mu sync.Mutex // protects found and missed
	found, missed := map[string]bool{}, 0
	t.Run("each", func(t *testing.T) {
		for _, s := range seededBugs {
			if !chosen(*soakKind, s.kind) {
				continue
			}
			t.Run(s.bug, func(t *testing.T) {
				t.Parallel()
				k := kinds[slices.IndexFunc(kinds, func(k kind) bool { return k.name == s.kind })]
				if s.run != nil {
					k.run = s.run
				}
				began, want := time.Now(), regexp.MustCompile(s.finds)
				for n := uint64(0); time.Since(began) < bugLimit; n++ {
					r := newRound(k, engine, *soakSeed+n, server, min(time.Second+time.Duration(n)*ttl, 3*ttl), s.bug,
						&tally{counts: map[string]int{}})
					if k.engines != nil && !slices.Contains(k.engines, engine) || s.sqlite {
						r.engine, r.server = dbtest.KindSQLite, nil
					}
					t.Run(fmt.Sprint(r.seed), func(t *testing.T) { k.play(t, r) })
					texts := r.all()
					mu.Lock()
					for _, text := range texts {
						checker, _, _ := strings.Cut(text, ":")
						found[checker] = true
					}
					mu.Unlock()
					if i := slices.IndexFunc(texts, want.MatchString); i >= 0 {
						fmt.Printf("found  %5.1f s  %-10s %s: %.100s\n", time.Since(began).Seconds(), s.kind, s.bug,
							texts[i])
						return
					}
				}
				mu.Lock()
				missed++
				mu.Unlock()
				fmt.Printf("MISSED %5.1f s  %-10s %s\n  once more: scripts/soak -bugs -seed %d -kind %s\n",
					time.Since(began).Seconds(), s.kind, s.bug, *soakSeed, s.kind)
				t.Errorf("nothing like %s was found", s.finds)
			})
		}
	})
	// each of the three sees some of what one of them must see
	for _, checker := range []string{exclusion, tokens, order} {
		if chosen(*soakKind, "history") && missed == 0 && !found[checker] {
			t.Errorf("%s found nothing in any of them", checker)
		}
	}
}

func TestMain(m *testing.M) {
	if text := os.Getenv(actorVariable); text != "" {
		os.Exit(act(text, os.Stdin, os.Stdout))
	}
	flag.Parse()
	began, code := time.Now(), dbtest.Run(m)
	if *soakTime > 0 || *soakBugs {
		verdict := "nothing is wrong"
		if code != 0 {
			verdict = "FAILED"
		}
		fmt.Printf("%s: seed %d, %d lines in %v, violations: %d\n", verdict, *soakSeed, lines.n,
			time.Since(began).Round(time.Second), lines.violations)
	}
	os.Exit(code)
}
