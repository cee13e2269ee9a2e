package named_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/named"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
)

// A server of the test's own is demoted, promoted, stopped, and killed. To make a MySQL server
// takes too long here.
func TestNamedLocksAndTheFateOfTheirServer(t *testing.T) {
	if os.Getenv("DBLOCK_TEST_SOAK") == "" {
		t.Skip("scripts/soak runs it")
	}
	dbtest.Empty(t, dbtest.KindMariaDB) // or a machine without binaries would be found to have no server at all
	own := dbtest.OwnMariaDB(t)
	db := own.Empty(t)
	s := stage{db, db.SQL(t), t, ""}
	k := s.client(nil)

	p := s.lock(k, "n")
	s.exec("SET GLOBAL read_only = 1")
	_, _, err := k.Acquire(t.Context(), "m", false, true)
	is(t, err, driver.ErrReadOnly)
	s.lost(p)
	is(t, context.Cause(p.Kept()), driver.ErrReadOnly)
	_, _, err = s.client(nil).Acquire(t.Context(), "m", false, true)
	is(t, err, driver.ErrReadOnly)
	s.nothingLeft("n", "m")
	s.exec("SET GLOBAL read_only = 0")

	p = s.lock(k, "n")
	own.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	for name, wait := range map[string]bool{"m": true, "o": false} {
		_, _, err = k.Acquire(ctx, name, false, wait)
		is(t, err, context.DeadlineExceeded)
	}
	is(t, p.Release(ctx), context.DeadlineExceeded)
	if took := time.Since(began); took > patience/3 {
		t.Errorf("a stopped server held up calls for %v beyond their context", took)
	}
	own.Resume()
	s.nothingLeft("n", "m", "o") // what was asked for meanwhile was given back

	p = s.lock(k, "n")
	one := s.client(nil)
	c, cancelWait := s.begin(one, "n", 1)
	defer cancelWait()
	own.Kill()
	s.lost(p)
	own.Start()
	s.unlock(s.granted(c)) // the wait has survived it
	s.unlock(s.lock(k, "n"))
	assert.Equal(t, s.holder(named.Key("n")), -1, "it is still held")
}
