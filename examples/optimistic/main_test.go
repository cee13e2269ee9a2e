package main

import (
	"bytes"
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

func TestTicketsAreSoldTwiceWithoutAVersionAndNoneWithIt(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db dbtest.Database) {
		o := options{dsn: db.DSN, counters: 4, tickets: 100, think: 2 * time.Millisecond}
		if db.Kind == dbtest.KindSQLite {
			o.dsn = ""
			t.Setenv("TMPDIR", t.TempDir())
		}
		var out bytes.Buffer
		if err := play(t.Context(), o, &out); err != nil {
			t.Fatalf("%v\n%s", err, &out)
		}
		if !regexp.MustCompile(
			`(?m)^Without a version: \d+ tickets were sold, [1-9]\d* too many, in \S+\.\nWith a version: 100 tickets were sold, none twice, in \S+; \d+ times `).Match(out.Bytes()) {
			t.Error(out.String())
		}
		if db.Kind == dbtest.KindSQLite {
			if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
				t.Errorf("it left %v, %v", left, err)
			}
			return
		}
		var n int
		assert.Error(t, db.SQL(t).QueryRowContext(t.Context(), "SELECT n FROM "+tableName).Scan(&n), tableName,
			"is still there")
	})
}

func TestCtrlCEndsTheSale(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	o := options{counters: 4, tickets: 1_000_000, think: time.Millisecond}
	assert.ErrorIs(t, play(ctx, o, &bytes.Buffer{}), context.DeadlineExceeded)
}

func TestBadFlags(t *testing.T) {
	for _, args := range []string{"-counters=0", "-tickets=0", "-think=-1s", "more"} {
		assert.Error(t, assert.ErrOf(parseOptions(strings.Fields(args))), args, "is taken")
	}
}
