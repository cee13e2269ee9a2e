//go:build unix

package fault

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// span is a time in which something was so.
type span struct{ from, to time.Duration }

// process is an actor as its parent sees it.
type process struct {
	t     *world
	label string
	cmd   *exec.Cmd
	in    *json.Encoder
	pipe  io.WriteCloser
	said  *tail         // what it wrote to standard error
	ended chan struct{} // closed when it has gone and all that it said is in events

	mu      sync.Mutex // protects what follows
	events  []event
	moved   chan struct{} // closed, and made anew, with each event
	ops     int
	killed  span // around the SIGKILL
	stopped time.Duration
	stops   []span
}

// tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (w *tail) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.b = append(w.b, b...)
	w.b = bytes.Clone(w.b[max(0, len(w.b)-32000):])
	return len(b), nil
}

func (w *tail) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.b)
}

// spawn starts an actor, and returns when it is ready.
func spawn(t *world, label string, config actorConfig) *process {
	t.Helper()
	p := launch(t, label, config)
	p.await(0, evReady)
	return p
}

func launch(t *world, label string, config actorConfig) *process {
	t.Helper()
	text, err := json.Marshal(config)
	require.NoError(t, err)
	p := &process{t: t, label: label, said: &tail{}, ended: make(chan struct{}), moved: make(chan struct{})}
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), actorVariable+"="+string(text),
		"GOMAXPROCS="+strconv.Itoa(min(2, runtime.NumCPU())), "GORACE=atexit_sleep_ms=0")
	p.cmd.Stderr = p.said
	if p.pipe, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	p.in = json.NewEncoder(p.pipe)
	// Not StdoutPipe: Wait closes that with lines unread.
	read, write, err := os.Pipe()
	require.NoError(t, err)
	p.cmd.Stdout = write
	require.NoError(t, p.cmd.Start())
	_ = write.Close()
	go p.listen(read)
	t.Cleanup(func() {
		p.end()
		if t.Failed() {
			t.Logf("%s %s", p.label, dbtest.Excerpt(t, p.label, p.said.String()))
		}
	})
	return p
}

func (p *process) listen(out *os.File) {
	defer close(p.ended)
	defer out.Close()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // cut off by its death
		}
		switch {
		case e.What == evHeld:
			p.t.tried("grants", 1)
		case e.What == evLost && e.is(kindLost) && !e.is(kindClosed):
			p.t.tried("lost", 1)
		}
		p.mu.Lock()
		p.events = append(p.events, e)
		close(p.moved)
		p.moved = make(chan struct{})
		p.mu.Unlock()
	}
	_ = p.cmd.Wait()
}

// send gives a command, and returns its number.
func (p *process) send(c command) int {
	p.t.Helper()
	p.mu.Lock()
	p.ops++
	c.Op = p.ops
	p.mu.Unlock()
	require.NoError(p.t, p.in.Encode(c), p.label, c.Verb)
	return c.Op
}

// find returns the first event about an op that is one of these, or false where there is none yet.
func (p *process) find(op int, whats ...string) (event, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.events {
		if e.Op == op && slices.Contains(whats, e.What) {
			return e, true
		}
	}
	return event{}, false
}

// await waits for such an event.
func (p *process) await(op int, whats ...string) event {
	p.t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for over := false; ; {
		p.mu.Lock()
		moved := p.moved
		p.mu.Unlock()
		if e, ok := p.find(op, whats...); ok {
			return e
		}
		if over {
			p.t.Fatalf("%s ended without %v of %d", p.label, whats, op)
		}
		select {
		case <-moved:
		case <-p.ended:
			over = true
		case <-limit.C:
			_ = p.cmd.Process.Signal(syscall.SIGQUIT) // it tells where it hangs
			<-p.ended
			p.t.Fatalf("%s: no %v of %d in %v; it said %v", p.label, whats, op, patience, p.saidOf(op))
		}
	}
}

func (p *process) saidOf(op int) (events []event) {
	for _, e := range p.all() {
		if e.Op == op {
			events = append(events, e)
		}
	}
	return events
}

func (p *process) all() []event {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.events)
}

// count is how many events of a kind there are so far.
func (p *process) count(what string) (n int) {
	for _, e := range p.all() {
		if e.What == what {
			n++
		}
	}
	return n
}

// lock begins to lock, and returns the number under which the hold will be known.
func (p *process) lock(name string) int {
	p.t.Helper()
	return p.send(command{Verb: "lock", Name: name})
}

// mustLock returns when the actor holds the name.
func (p *process) mustLock(name string) event {
	p.t.Helper()
	op := p.lock(name)
	p.await(op, evHeld, evRefused)
	p.unanswered(op)
	return p.held(op)
}

// unanswered ends a scenario whose database did not answer the first request of an actor within a
// TTL. A client retries that only after it has had a session.
func (p *process) unanswered(op int) {
	p.t.Helper()
	if e, refused := p.find(op, evRefused); refused && e.is(kindUnavailable) && p.count(evHeld) == 0 {
		p.t.starved(e.Err)
	}
}

// held waits until a hold that was asked for is there.
func (p *process) held(op int) event {
	p.t.Helper()
	e := p.await(op, evHeld, evRefused)
	require.Equal(p.t, e.What, evHeld, p.label, "did not get the lock", e.Err)
	return e
}

// unlock returns what Unlock returned.
func (p *process) unlock(hold int) event {
	p.t.Helper()
	p.send(command{Verb: "unlock", Hold: hold})
	return p.await(hold, evUnlocked)
}

func (p *process) mustUnlock(hold int) event {
	p.t.Helper()
	e := p.unlock(hold)
	switch {
	case starvation(e.Err):
		p.t.starved(e.Err)
	case e.Err != "":
		p.t.Fatalf("%s: unlock: %s", p.label, e.Err)
	}
	return e
}

// write is the write that the hold's token protects. One for each hold.
func (p *process) write(hold int) event {
	p.t.Helper()
	p.send(command{Verb: "write", Hold: hold})
	return p.await(hold, evWrote)
}

// work sets a crew to work.
func (p *process) work(mode string, workers int, names ...string) {
	p.t.Helper()
	p.await(p.send(command{Verb: "work", Name: mode, Workers: workers, Names: names}), evDone)
}

// exit closes the actor's clients in good order; it fails where something of them still runs.
func (p *process) exit() {
	p.t.Helper()
	if e := p.await(p.send(command{Verb: "exit"}), evDone); e.Err != "" {
		p.t.Errorf("%s: exit: %s", p.label, e.Err)
	}
	<-p.ended
}

// kill is SIGKILL. It returns when the process has gone; between the times it died.
func (p *process) kill() span {
	p.t.Helper()
	p.t.tried("kills", 1)
	return p.end()
}

// end is a kill that is no fault.
func (p *process) end() span {
	select {
	case <-p.ended:
		return p.killed
	default:
	}
	at := session.Boottime()
	_ = p.cmd.Process.Kill()
	<-p.ended
	_ = p.pipe.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.killed = span{at, session.Boottime()}
	return p.killed
}

// stop is SIGSTOP. It returns when the process stands still.
func (p *process) stop() time.Duration {
	p.t.Helper()
	at := session.Boottime()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGSTOP))
	p.stopped = at
	p.t.tried("stops", 1)
	eventually(p.t, p.label+" stands still", func() bool { return state(p.cmd.Process.Pid) == 'T' })
	return at
}

// resume is SIGCONT.
func (p *process) resume() time.Duration {
	p.t.Helper()
	at := session.Boottime()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGCONT))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stops = append(p.stops, span{p.stopped, at})
	return at
}

// state is the letter of a process's state.
func state(pid int) byte {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	if end := bytes.LastIndexByte(text, ')'); end >= 0 && end+2 < len(text) {
		return text[end+2]
	}
	return 0
}
