//go:build unix

package fault

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/crash"
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

const (
	neighbors = 8 // processes on one host
	// hostTTL keeps two reasons apart for which a lock moves. A crash is seen within a second. A
	// lease ends four fifths of the TTL after the crash, or later, since the last heartbeat is no
	// older than a fifth.
	hostTTL = 8 * time.Second
	// mostTroubled is how many processes are stopped or cut off at once.
	mostTroubled = 2
)

// host is processes of one machine that share locks and a folder.
type host struct {
	*world
	path    string       // of the folders of all databases; "": the engine's choice
	folder  crash.Folder // of this database
	names   []string
	running [neighbors]*neighbor
	all     []*neighbor
	buried  map[string]bool // sessions whose burial has been judged
	deaths  []death
	leaving []leaver
	calm    time.Duration // no trouble begins before: nobody is stopped in the middle of a takeover
}

// neighbor is a process and what was done to it.
type neighbor struct {
	*process
	place   int
	work    int           // the command
	proxy   *dbtest.Proxy // nil: SQLite
	trouble []span        // stops and cuts; the last one may last: until forever
	due     time.Duration // when the present trouble ends
	end     func()        // ends it; nil: there is none
}

// leaver is a process that ends in good order.
type leaver struct {
	*neighbor
	exit int // the command
}

// crashRound kills, stops and cuts off processes of one host, restarts them, and copies the files
// that show that they live. A stop or a cut is shorter than the TTL, or longer. A process may be
// killed while another one is stopped, and while it is stopped itself. Where a bug was seeded, the
// round ends with the first burial that is wrong.
func crashRound(w *world) {
	h := &host{world: w, names: []string{"a", "b", "c", readName, permitsName}, buried: map[string]bool{}}
	h.meet()
	for i := range neighbors {
		n := &neighbor{place: i}
		if w.db.Kind != dbtest.KindSQLite {
			n.proxy = w.proxy()
		}
		h.start(n)
	}
	for _, n := range h.all {
		n.await(0, evReady)
	}
	pass(time.Second)
	length := w.length
	if w.bug != "" {
		length = 45 * time.Second
	}
	h.disturb(length)
	h.burials()
	h.close()
	h.judge()
}

// meet chooses where the clients of this host show that they live. By default the databases of
// tests would share a folder: they are copies of one, and have the same id.
func (h *host) meet() {
	h.Helper()
	if h.db.Kind != dbtest.KindSQLite { // there the folder is beside the file
		h.path = h.TempDir()
	}
	backend, closePool, err := openEngine(h.db.Kind, h.db.DSN)
	require.NoError(h, err)
	defer closePool()
	schema, err := backend.Schema(h.Context())
	require.NoError(h, err)
	h.folder = crash.Setting{Path: h.path}.Folder(backend.HostFolder, false, func() string { return schema.Database })
	if h.folder == "" {
		h.Fatal("the processes of this host have no folder")
	}
}

// start starts a process in the place of one that has ended, and does not wait for it.
func (h *host) start(last *neighbor) {
	h.Helper()
	config := actorConfig{Kind: h.db.Kind, DSN: h.db.DSN, TTL: hostTTL, Reaper: last.place%4 == 0, Bug: h.bug,
		Seed: h.random.Uint64(), Beats: true, Host: h.path,
		Folder: h.folder}
	if last.proxy != nil {
		config.DSN = h.db.Through(h, last.proxy).DSN
	}
	n := &neighbor{process: launch(h.world, fmt.Sprintf("process %d", len(h.all)), config), place: last.place,
		proxy: last.proxy}
	workers := 2 // of one client
	if n.proxy == nil {
		workers = 1 // all writers of an SQLite file wait for each other
	}
	n.work = n.send(command{Verb: "work", Name: modeHold, Workers: workers, Names: h.names})
	h.running[n.place], h.all = n, append(h.all, n)
}

// disturb goes on until the time is over and no process is in trouble.
func (h *host) disturb(length time.Duration) {
	h.Helper()
	end := session.Boottime() + length
	if h.bug != bugForgetsProof {
		h.trouble(true)
	}
	for {
		pass(time.Duration(h.random.Int64N(int64(prompt))))
		h.heal()
		h.burials()
		over := session.Boottime() > end || len(h.world.all()) > 0
		if over && !slices.ContainsFunc(h.running[:], func(n *neighbor) bool { return n.end != nil }) {
			break
		}
		switch kind := h.random.IntN(20); {
		case (kind == 0 || h.bug == bugForgetsProof) && !over:
			h.killBesideCuts()
		case kind < 12 || over:
			h.kill(h.victim(h.random.IntN(4) > 0))
		case kind < 16:
			h.trouble(kind == 12)
		case kind < 18:
			h.copies()
		case kind < 19:
			h.original()
		default:
			h.restart()
		}
	}
	pass(sure)
}

// wanted is a process that has a whole name, for which another one waits that is in no trouble.
type wanted struct {
	*neighbor
	name string
}

func (h *host) wanted() (all []wanted) {
	for _, n := range h.running {
		for _, t := range n.tenures() {
			waited := slices.ContainsFunc(h.running[:], func(other *neighbor) bool {
				return other != n && other.end == nil && other.waitsFor(t.name)
			})
			if t.over == forever && t.portion.Units == 0 && waited {
				all = append(all, wanted{n, t.name})
			}
		}
	}
	return all
}

func (n *neighbor) waitsFor(name string) bool {
	return slices.ContainsFunc(n.requests(), func(r *request) bool { return r.name == name && r.until == forever })
}

// victim is one that is wanted, if there is any soon, or any process; if healthy, one that is in no
// trouble.
func (h *host) victim(healthy bool) *neighbor {
	h.Helper()
	for range 10 {
		if len(h.wanted()) > 0 {
			break
		}
		pass(prompt / 10)
	}
	fit := func(n *neighbor) bool { return n.end == nil || !healthy }
	var all []*neighbor
	for _, p := range h.wanted() {
		if fit(p.neighbor) {
			all = append(all, p.neighbor)
		}
	}
	if len(all) == 0 { // some are in no trouble: killBesideCuts spares those that wait
		all = slices.DeleteFunc(slices.Clone(h.running[:]), func(n *neighbor) bool { return !fit(n) })
	}
	return all[h.random.IntN(len(all))]
}

// kill kills a process and starts another one at once.
func (h *host) kill(n *neighbor) {
	h.Helper()
	genuine := h.genuine(n)
	h.deaths = append(h.deaths, death{n, n.kill(), genuine})
	if n.end != nil {
		n.trouble[len(n.trouble)-1].to = n.killed.to
		if n.proxy != nil {
			n.proxy.Heal()
		}
	}
	h.start(n)
	h.calm = session.Boottime() + prompt
}

// killBesideCuts cuts off the processes that do not wait for a name, and kills the one that has it.
// Processes that are cut off see the end, and cannot write it. Processes that wait can.
// killBesideCuts does nothing unless all processes are well: else the kill would be excused.
func (h *host) killBesideCuts() {
	h.Helper()
	all := h.wanted()
	if len(all) == 0 || all[0].proxy == nil || slices.ContainsFunc(h.running[:], func(n *neighbor) bool {
		return n.troubled(session.Boottime(), forever)
	}) {
		return
	}
	p := all[h.random.IntN(len(all))]
	for _, n := range h.running {
		if n != p.neighbor && n.end == nil && !n.waitsFor(p.name) {
			h.cut(n, (*dbtest.Proxy).Cut, 2*prompt)
		}
	}
	pass(prompt / 10)
	h.kill(p.neighbor)
}

// cut has a fault of the network begin for one process.
func (h *host) cut(n *neighbor, how func(*dbtest.Proxy), d time.Duration) {
	h.Helper()
	h.tried("network faults", 1)
	from := session.Boottime()
	how(n.proxy)
	n.end, n.due = n.proxy.Heal, from+d
	n.trouble = append(n.trouble, span{from, forever})
}

// trouble stops a process, or cuts it off, for a while.
func (h *host) trouble(long bool) {
	h.Helper()
	troubled := 0
	for _, n := range h.running {
		if n.end != nil {
			troubled++
		}
	}
	if troubled >= mostTroubled {
		return
	}
	pass(h.calm - session.Boottime())
	n := h.victim(true)
	d := hostTTL/10 + time.Duration(h.random.Int64N(int64(hostTTL*7/10)))
	if long {
		d = hostTTL * 5 / 4
	}
	how := h.random.IntN(6)
	if n.proxy == nil || h.bug == bugTakesCopies {
		how = 0
	}
	switch {
	case how < 3:
		from := session.Boottime()
		h.halt(n.process)
		n.end, n.due = func() { n.resume() }, from+d
		n.trouble = append(n.trouble, span{from, forever})
	case how < 4:
		h.cut(n, (*dbtest.Proxy).Freeze, d)
	default:
		h.cut(n, (*dbtest.Proxy).Cut, d)
	}
}

// heal ends what is due.
func (h *host) heal() {
	for _, n := range h.running {
		if n.end != nil && session.Boottime() > n.due {
			n.end()
			n.end = nil
			n.trouble[len(n.trouble)-1].to = session.Boottime()
		}
	}
}

// restart ends a process in good order, and starts another one.
func (h *host) restart() {
	h.Helper()
	n := h.victim(true)
	h.tried("restarts", 1)
	n.trouble = append(n.trouble, span{session.Boottime(), forever}) // it asks for nothing any more
	h.leave(n)
	h.start(n)
}

func (h *host) leave(n *neighbor) {
	h.Helper()
	n.await(n.work, evDone)
	h.leaving = append(h.leaving, leaver{n, n.send(command{Verb: "exit"})})
}

// close ends all processes in good order.
func (h *host) close() {
	h.Helper()
	for _, n := range h.running {
		h.leave(n)
	}
	for _, l := range h.leaving {
		if e := l.await(l.exit, evDone); e.Err != "" && !e.is(kindUnavailable) {
			h.Errorf("%s: exit: %s", l.label, e.Err)
		}
		<-l.ended
	}
}

// originals is where the files are that were copied.
func originals(folder crash.Folder) string { return string(folder) + "-originals" }

// copies puts a copy in the place of the file of one session, or of all, as a folder is that was
// restored.
func (h *host) copies() {
	h.Helper()
	sessions := aliveSessions(h.folder)
	if len(sessions) > 0 && h.random.IntN(2) == 0 {
		i := h.random.IntN(len(sessions))
		sessions = sessions[i : i+1]
	}
	require.NoError(h, os.MkdirAll(originals(h.folder), 0o700))
	for _, s := range sessions {
		path, aside := aliveFile(h.folder, s), filepath.Join(originals(h.folder), s+aliveSuffix)
		text, err := os.ReadFile(path)
		if err != nil || os.Link(path, aside) != nil {
			continue // it has ended meanwhile, or is a copy already
		}
		made := filepath.Join(originals(h.folder), s)
		require.NoError(h, os.WriteFile(made, text, 0o600))
		require.NoError(h, os.Rename(made, path))
		h.tried("copies", 1)
	}
}

// original puts the files back that were copied, as if nothing had been restored.
func (h *host) original() {
	h.Helper()
	for _, s := range aliveSessions(crash.Folder(originals(h.folder))) {
		require.NoError(h, os.Rename(filepath.Join(originals(h.folder), s+aliveSuffix), aliveFile(h.folder, s)))
	}
}

// genuine reports whether the file of a process proves its end.
func (h *host) genuine(n *neighbor) bool {
	_, sessions := n.sessions()
	if len(sessions) == 0 {
		return false
	}
	file, err := os.Open(aliveFile(h.folder, sessions[len(sessions)-1]))
	if err != nil {
		return false
	}
	defer file.Close()
	text, node := evidenceIn(file)
	return len(text) > len(node) && text[len(text)-len(node):] == node
}
