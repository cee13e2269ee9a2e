package mysqlserver

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
)

// KillInterval is the pause between two KILLs of a statement that is expected to end at once: a
// KILL between two statements is lost.
const KillInterval = 20 * time.Millisecond

// ErrNoNamedLocks is the cause of an error if GET_LOCK gives no lock.
var ErrNoNamedLocks = errors.New("the server gives no named locks")

// Tag names a connection for as long as the connection lives: it is a named lock that the
// connection holds. The id of a connection is no such name: a restarted server counts from the
// beginning, and several servers use the same ids.
type Tag string

// NewTag makes a tag that no connection has.
func NewTag() Tag { return Tag(rand.Text()) }

// Querier is a connection, or a transaction on one.
type Querier interface {
	QueryRowContext(ctx context.Context, text string, args ...any) *sql.Row
}

// Name returns the name of the named lock.
func (t Tag) Name() string { return "dblock:" + string(t) }

// IsTied reports whether a connection has the tag.
func (t Tag) IsTied(ctx context.Context, on Querier) (tied bool, err error) {
	err = on.QueryRowContext(ctx, "SELECT IS_USED_LOCK('"+t.Name()+"') IS NOT NULL").Scan(&tied)
	return tied, Interpret(err)
}

// Tie gives the tag to a connection.
func (t Tag) Tie(ctx context.Context, on Querier) error {
	var got sql.NullInt64
	if err := on.QueryRowContext(ctx, "SELECT GET_LOCK('"+t.Name()+"', 0)").Scan(&got); err != nil {
		return Interpret(err)
	}
	if got.Int64 != 1 {
		return driver.Fail(driver.ErrConfig, ErrNoNamedLocks)
	}
	return nil
}

var plainTag = regexp.MustCompile(`^[A-Za-z0-9]{1,32}$`)

// Kill ends the QUERY of the connection with a tag, or the CONNECTION itself. It sends no
// parameters: MySQL allows none in a KILL. A tag may come from tables that others write.
func Kill(ctx context.Context, on interface {
	ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error)
}, what, tag string) error {
	if !plainTag.MatchString(tag) {
		return driver.Fail(driver.ErrUnsupported, fmt.Errorf("session id %q", tag))
	}
	_, err := on.ExecContext(ctx, "KILL "+what+" IS_USED_LOCK('dblock:"+tag+"')")
	return err
}

// WasKilled reports whether a KILL QUERY ended a statement.
func WasKilled(err error) bool { return Number(err) == killed }
