//go:build unix

package fault

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
)

// Engines that are broken, each in one way.
const (
	bugGrantsUnseen   = "grants a lock without looking whether it is free"
	bugReusesTokens   = "gives the same token again"
	bugNeverDies      = "reports a session that has expired as alive"
	bugDropsHandOffs  = "frees a lock that others wait for"
	bugServesSecond   = "serves the second waiter first"
	bugDiesTooSoon    = "reports a living session as dead"
	bugNeverGivesBack = "never gives up a place in the queue"
	bugAsksNobody     = "looks at a context that a timer ends"
)

// slowBugs show in a holder at some heartbeat: work under locks is long with them.
var slowBugs = []string{bugNeverDies, bugDiesTooSoon}

// bugs are the hooks of broken engines.
var bugs = map[string]func(db *sql.DB) fakedb.Hook{
	bugGrantsUnseen: alone(grantsUnseen),
	bugReusesTokens: func(*sql.DB) fakedb.Hook {
		return (&reusesTokens{real: map[string]int64{}, sessions: map[string]bool{}}).hook
	},
	bugNeverDies: alone(beats(func(_ context.Context, c *fakedb.Call) error {
		c.Alive = true
		return nil
	})),
	bugDropsHandOffs: released(dropHandOffs),
	bugServesSecond: released(func(ctx context.Context, db *sql.DB, c *fakedb.Call, m protocol.Removal) error {
		return passOver(ctx, db, c, m, "")
	}),
	bugDiesTooSoon: func(*sql.DB) fakedb.Hook {
		var n atomic.Int64
		return beats(func(ctx context.Context, c *fakedb.Call) error {
			if n.Add(1)%4 == 0 {
				return nil // not alive
			}
			return c.Do(ctx)
		})
	},
	bugOneTooMany:   unseen(func(r protocol.Request, s driver.State) bool { return r.Units > 0 && s.Sharing > 0 }),
	bugWriterBeside: unseen(func(r protocol.Request, s driver.State) bool { return r.Units == 0 && s.Sharing > 0 }),
	bugReaderBeside: unseen(func(r protocol.Request, s driver.State) bool {
		return r.Units > 0 && s.Holder.Session != "" && s.Sharing == 0
	}),
	bugCountsOne:           alone(countsOne),
	bugUpgradesBeside:      moved(func(op protocol.Op) protocol.Op { return besideOp{op} }),
	bugDowngradesToNothing: moved(func(op protocol.Op) protocol.Op { return toNothing{op} }),
	bugLetsSmallPass:       released(letSmallPass),
	bugLetsReadersPass:     letsReadersPass,
	bugLeavesRoom:          released(leaveRoom),
	bugForgetsUnits:        released(forgetUnits),
	bugNeverGivesBack: alone(func(ctx context.Context, c *fakedb.Call) error {
		if c.Removes(protocol.ByAttempt) {
			c.Outcome(protocol.Undone)
			return nil
		}
		return c.Do(ctx)
	}),
}

// alone is a bug that needs no access to the database.
func alone(hook fakedb.Hook) func(*sql.DB) fakedb.Hook {
	return func(*sql.DB) fakedb.Hook { return hook }
}

// released is a bug in the release of a lock.
func released(
	release func(ctx context.Context, db *sql.DB, c *fakedb.Call, m protocol.Removal) error,
) func(*sql.DB) fakedb.Hook {
	return func(db *sql.DB) fakedb.Hook {
		return func(ctx context.Context, c *fakedb.Call) error {
			if m, is := c.Op().(protocol.Removal); is && m.Cause == protocol.ByHolder {
				return release(ctx, db, c, m)
			}
			return c.Do(ctx)
		}
	}
}

// moved is a bug in what changes a lock that is held.
func moved(broken func(op protocol.Op) protocol.Op) func(*sql.DB) fakedb.Hook {
	return alone(func(ctx context.Context, c *fakedb.Call) error {
		if c.Moves() {
			c.Ops = []protocol.Op{broken(c.Op())}
		}
		return c.Do(ctx)
	})
}

// grantsUnseen grants what is not free, also among the requests that are sent together.
func grantsUnseen(ctx context.Context, c *fakedb.Call) error {
	err := c.Do(ctx)
	for i, r := range c.Results {
		if take, is := c.Ops[i].(protocol.Take); is && err == nil && !r.Done() {
			c.Results[i] = protocol.Result{Outcome: protocol.Done, Grant: madeUp(take.Request)}
		}
	}
	return err
}

// madeUp is a grant that no database has made.
func madeUp(r protocol.Request) protocol.Grant {
	now := time.Now().UnixMicro()
	return protocol.Grant{First: now, Token: now + int64(max(r.Members, 1)) - 1}
}

// reusesTokens rounds them, to the half second.
type reusesTokens struct {
	mu       sync.Mutex // protects what follows
	real     map[string]int64
	sessions map[string]bool
}

func (b *reusesTokens) round(name, session string, g *protocol.Grant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sessions[session] && g.Token != 0 {
		b.real[name] = g.Token
		over := g.First % (500 * time.Millisecond).Microseconds()
		g.First, g.Token = g.First-over, g.Token-over
	}
}

func (b *reusesTokens) held(h protocol.Held) protocol.Held {
	b.mu.Lock()
	defer b.mu.Unlock()
	h.Token = b.real[h.Name]
	return h
}

func (b *reusesTokens) hook(ctx context.Context, c *fakedb.Call) error {
	switch c.Method {
	case "OpenSession":
		b.mu.Lock()
		b.sessions[c.Session] = true
		b.mu.Unlock()
	case "Listen": // grants are taken from the hints, so that they are read, and rounded
		c.Hear = func(h protocol.Hint) protocol.Hint { return protocol.Hint{Attempt: h.Attempt} }
	}
	if m, is := c.Op().(protocol.Removal); is && m.Cause == protocol.ByHolder {
		m.Token = b.held(m.Held()).Token
		c.Ops = []protocol.Op{m}
	}
	err := c.Do(ctx)
	if op := c.Op(); op != nil && len(c.Results) == 1 && !c.Moves() {
		b.round(op.On(), op.By(), &c.Results[0].Grant)
		for i, next := range c.Results[0].Next {
			b.round(op.On(), next.Session, &c.Results[0].Next[i].Grant)
		}
	}
	for i, s := range c.States {
		b.round(s.Name, s.Holder.Session, &c.States[i].Holder.Grant)
		for j := range s.Granted {
			b.round(s.Name, c.Session, &s.Granted[j].Grant)
		}
	}
	return err
}

// beats is a bug in heartbeats. Claims, which would find out, fail.
func beats(beat fakedb.Hook) fakedb.Hook {
	return func(ctx context.Context, c *fakedb.Call) error {
		switch {
		case c.Beats():
			return beat(ctx, c)
		case c.Method == "Upkeep.Claims":
			return driver.ErrRetry
		}
		return c.Do(ctx)
	}
}

// dropHandOffs also forgets that others wait: else one of them would hand the lock on.
func dropHandOffs(ctx context.Context, db *sql.DB, c *fakedb.Call, m protocol.Removal) error {
	_, err := db.ExecContext(ctx,
		fmt.Sprintf("UPDATE dblock_locks SET session_id = NULL, host = '', thread = '', attempt = '', waiters = 0 "+
			"WHERE name = '%s' AND session_id = '%s' AND token = %d", m.Name, m.Session, m.Token))
	c.Outcome(protocol.Done)
	return err
}

// passOver puts the first place of a queue back before a release, if it fits a condition.
func passOver(ctx context.Context, db *sql.DB, c *fakedb.Call, m protocol.Removal, condition string) error {
	if err := putBack(ctx, db, m.Name, condition); err != nil {
		return err
	}
	return c.Do(ctx)
}

// putBack gives the first place of a queue the next ticket, if it fits a condition.
func putBack(ctx context.Context, db *sql.DB, name, condition string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, s := range []string{
		`UPDATE dblock_locks SET next_ticket = next_ticket + 1 WHERE name = '%s'`,
		`UPDATE dblock_waiters SET ticket = (SELECT l.next_ticket - 1 FROM dblock_locks l WHERE l.name = '%s')
			WHERE name = '%[1]s' AND ticket = (SELECT min(w.ticket) FROM dblock_waiters w WHERE w.name = '%[1]s') ` + condition,
	} {
		if _, err := tx.ExecContext(ctx, fmt.Sprintf(s, name)); err != nil {
			return err
		}
	}
	return tx.Commit()
}
