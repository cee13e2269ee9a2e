//go:build unix

package sqlite

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dblock-go/dblock/driver"
)

// granted is what a grant of another process does, which rings no bell here.
func (f *fixture) granted(session string) (nth int64) {
	f.t.Helper()
	f.exec("UPDATE dblock_heartbeats SET grants = grants + 1 WHERE session_id = ?", session)
	return f.number("SELECT grants FROM dblock_heartbeats WHERE session_id = ?", session)
}

// quickly is within what a notice must be heard: a look would come later.
func (l listener) quickly(want string) {
	l.t.Helper()
	began := time.Now()
	l.hears(want)
	if took := time.Since(began); took > safetyInterval/2 {
		l.t.Errorf("%q was heard after %v", want, took)
	}
}

func TestANoticeOfAnotherProcessIsHeardAtOnce(t *testing.T) {
	for name, folder := range map[string]string{"a short path": "", "a path too long for a socket": strings.Repeat("long/", 40)} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), folder, "locks.db")
			must(t, os.MkdirAll(filepath.Dir(path), 0o700))
			use(t, openPool(t, path, ""))
			f := open(t, path, "")
			s := f.session()
			l := f.listen(s)
			for range 20 {
				must(t, post(f.path, notice{s, f.granted(s), "attempt"}))
				l.quickly("attempt")
			}
		})
	}
}

func TestANoticeGoesToTheProcessOfItsSession(t *testing.T) {
	f := newFixture(t)
	a, b := f.session(), f.session()
	box, err := openBox(f.path, b)
	must(t, err)
	defer box.close()
	heard := make(chan notice, 8)
	go box.read(func(n notice) { heard <- n })
	arrives := func(want notice) {
		t.Helper()
		select {
		case got := <-heard:
			if got != want {
				t.Fatalf("%+v, want %+v", got, want)
			}
		case <-time.After(patience):
			t.Fatalf("%+v did not arrive", want)
		}
	}
	held := f.take("n", a)
	attempt := f.enqueue("n", b)
	tx := f.begin()
	must(t, f.tx().ReleaseTx(t.Context(), tx, held, nil))
	arrives(notice{nth: 1}) // of a commit to come
	must(t, tx.Rollback())
	f.release(held, true)
	arrives(notice{nth: 1, attempt: attempt})
}

func TestAGrantBetweenTheBoxAndReadyIsNotForgotten(t *testing.T) {
	f := newFixture(t)
	s := f.session()
	ctx, cancel := context.WithCancel(t.Context())
	heard, ended := make(chan driver.Hint, 8), make(chan error, 1)
	go func() {
		ended <- f.Listen(ctx, s, func() { f.granted(s) }, func(h driver.Hint) { heard <- h })
	}()
	select {
	case <-heard:
	case <-time.After(patience):
		t.Error("it is not heard of")
	}
	cancel()
	<-ended
}

// Broken by a post that waits, or by a listener that trusts that every notice has come.
func TestANoticeThatFindsTheBoxFullIsMissedForAMoment(t *testing.T) {
	f := newFixture(t)
	s := f.session()
	b, err := openBox(f.path, s)
	must(t, err)
	for err = nil; err == nil; {
		err = post(f.path, notice{s, 1, "attempt"})
	}
	if !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.ENOBUFS) {
		t.Errorf("a full box: %v", err)
	}
	b.close()
	l := f.listen(s)
	must(t, post(f.path, notice{s, f.granted(s), "attempt"}))
	l.quickly("attempt")
	f.granted(s) // the box was full
	l.quickly("")
}

func TestAGrantWhoseNoticeIsLostIsFound(t *testing.T) {
	f := newFixture(t)
	s := f.session()
	f.take(s, s)
	f.enqueue(s, s)
	l := f.listen(s)
	f.granted(s)
	l.hears("")
	time.Sleep(lateness) // it distrusts the others from then on
	for range 20 {
		f.granted(s)
		l.quickly("")
	}
}

// Broken by a listener that polls though it has a box.
func TestAnIdleWaiterCostsNextToNothing(t *testing.T) {
	f, p := onPower(t, "wal", "OFF")
	s := f.session()
	f.take(s, s)
	f.enqueue(s, s)
	f.listen(s)
	before := p.queries.Load()
	time.Sleep(50 * lookInterval)
	if n := p.queries.Load() - before; n > 10 {
		t.Errorf("%d queries in %v", n, 50*lookInterval)
	}
}

func TestTheBoxesOfDeadProcessesAreTakenAway(t *testing.T) {
	f := newFixture(t)
	dead, err := openBox(f.path, "dead")
	must(t, err)
	must(t, dead.socket.Close()) // as by SIGKILL
	b, err := openBox(f.path, "alive")
	must(t, err)
	other, err := openBox(f.path, "another")
	must(t, err)
	if _, err := os.Lstat(dead.path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the box of a dead process: %v", err)
	}
	for _, b := range []*box{b, other} {
		if !b.stands() {
			t.Error("the box of a living session was taken away")
		}
		b.close()
	}
	if _, err := os.Lstat(f.path + "-dblock"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is left: %v", err)
	}
}

func TestABoxIsForThoseWhoCanWriteToTheDatabase(t *testing.T) {
	for database, want := range map[fs.FileMode][2]fs.FileMode{
		0o600: {0o700, 0o600}, 0o644: {0o700, 0o600}, 0o664: {0o770, 0o660}, 0o666: {0o777, 0o666},
	} {
		f := newFixture(t)
		must(t, os.Chmod(f.path, database))
		b, err := openBox(f.path, "s")
		must(t, err)
		folder, err := os.Stat(filepath.Dir(b.path))
		must(t, err)
		if got := [2]fs.FileMode{folder.Mode().Perm(), b.made.Mode().Perm()}; got != want {
			t.Errorf("a database of mode %v: %v, want %v", database, got, want)
		}
		b.close()
	}
}

func TestAListenerWhoseBoxWasTakenAwayBeginsAnew(t *testing.T) {
	f := newFixture(t)
	s := f.session()
	ended := make(chan error, 1)
	go func() {
		ended <- f.Listen(t.Context(), s, func() { _ = os.RemoveAll(f.path + "-dblock") }, func(driver.Hint) {})
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, errNoBox) {
			t.Fatal(err)
		}
	case <-time.After(patience):
		t.Fatal("it goes on")
	}
}

func TestABoxIsNeverOutsideItsFolder(t *testing.T) {
	f := newFixture(t)
	for _, session := range []string{"", ".", "..", "../x", "a/b", "/"} {
		if b, err := openBox(f.path, session); err == nil {
			t.Errorf("%q: a box at %s", session, b.path)
		}
		if err := post(f.path, notice{session, 1, "a"}); err == nil {
			t.Errorf("%q: posted", session)
		}
	}
}
