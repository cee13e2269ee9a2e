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
	"github.com/dblock-go/dblock/internal/testing/drivertest"
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
)

// slowBugs show in a holder at some heartbeat: work under locks is long with them.
var slowBugs = []string{bugNeverDies, bugDiesTooSoon}

var bugs = map[string]func(b driver.Backend, db *sql.DB) driver.Backend{
	bugGrantsUnseen: func(b driver.Backend, _ *sql.DB) driver.Backend { return grantsUnseen{b} },
	bugReusesTokens: func(b driver.Backend, _ *sql.DB) driver.Backend {
		return &reusesTokens{Backend: b, real: map[string]int64{}, sessions: map[string]bool{}}
	},
	bugNeverDies: func(b driver.Backend, _ *sql.DB) driver.Backend {
		return beats{b, func(driver.Upkeep, context.Context, string, time.Duration) (bool, error) { return true, nil },
			true}
	},
	bugDropsHandOffs: func(b driver.Backend, db *sql.DB) driver.Backend { return dropsHandOffs{b, db} },
	bugServesSecond:  func(b driver.Backend, db *sql.DB) driver.Backend { return servesSecond{b, db} },
	bugDiesTooSoon: func(b driver.Backend, _ *sql.DB) driver.Backend {
		var n atomic.Int64
		return beats{b, func(u driver.Upkeep, ctx context.Context, session string, ttl time.Duration) (bool, error) {
			if n.Add(1)%4 == 0 {
				return false, nil
			}
			return u.Heartbeat(ctx, session, ttl)
		}, true}
	},
	bugOneTooMany: func(b driver.Backend, _ *sql.DB) driver.Backend {
		return unseen{b, func(r driver.Request, s driver.State) bool { return r.Units > 0 && s.Sharing > 0 }}
	},
	bugWriterBeside: func(b driver.Backend, _ *sql.DB) driver.Backend {
		return unseen{b, func(r driver.Request, s driver.State) bool { return r.Units == 0 && s.Sharing > 0 }}
	},
	bugReaderBeside: func(b driver.Backend, _ *sql.DB) driver.Backend {
		return unseen{b, func(r driver.Request, s driver.State) bool {
			return r.Units > 0 && s.Holder.Session != "" && s.Sharing == 0
		}}
	},
	bugCountsOne:           func(b driver.Backend, _ *sql.DB) driver.Backend { return countsOne{b} },
	bugUpgradesBeside:      func(b driver.Backend, _ *sql.DB) driver.Backend { return upgradesBeside{b} },
	bugDowngradesToNothing: func(b driver.Backend, _ *sql.DB) driver.Backend { return downgradesToNothing{b} },
	bugLetsSmallPass:       func(b driver.Backend, db *sql.DB) driver.Backend { return letsSmallPass{b, db} },
	bugLetsReadersPass:     func(b driver.Backend, db *sql.DB) driver.Backend { return letsReadersPass{b, db} },
	bugLeavesRoom:          func(b driver.Backend, db *sql.DB) driver.Backend { return leavesRoom{b, db} },
	bugForgetsUnits:        func(b driver.Backend, db *sql.DB) driver.Backend { return forgetsUnits{b, db} },
	bugNeverGivesBack:      func(b driver.Backend, _ *sql.DB) driver.Backend { return neverGivesBack{b} },
}

type grantsUnseen struct{ driver.Backend }

func (b grantsUnseen) Run(ctx context.Context, ops ...protocol.Op) ([]protocol.Result, error) {
	return drivertest.Ways{Take: b.take}.Run(ctx, b.Backend, ops...)
}

func (b grantsUnseen) take(ctx context.Context, r driver.Request) (driver.Grant, bool, error) {
	g, taken, err := drivertest.Take(ctx, b.Backend, r)
	if err == nil && !taken {
		return madeUp(r), true, nil
	}
	return g, taken, err
}

// madeUp is a grant that no database has made.
func madeUp(r driver.Request) driver.Grant {
	now := time.Now().UnixMicro()
	return driver.Grant{First: now, Token: now + int64(max(r.Members, 1)) - 1}
}

// reusesTokens rounds them, to the half second.
type reusesTokens struct {
	driver.Backend

	mu       sync.Mutex // protects what follows
	real     map[string]int64
	sessions map[string]bool
}

func (b *reusesTokens) OpenSession(ctx context.Context, s driver.Session) error {
	b.mu.Lock()
	b.sessions[s.ID] = true
	b.mu.Unlock()
	return b.Backend.OpenSession(ctx, s)
}

func (b *reusesTokens) round(name, session string, g *driver.Grant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sessions[session] && g.Token != 0 {
		b.real[name] = g.Token
		over := g.First % (500 * time.Millisecond).Microseconds()
		g.First, g.Token = g.First-over, g.Token-over
	}
}

func (b *reusesTokens) held(h driver.Held) driver.Held {
	b.mu.Lock()
	defer b.mu.Unlock()
	h.Token = b.real[h.Name]
	return h
}

func (b *reusesTokens) Run(ctx context.Context, ops ...protocol.Op) ([]protocol.Result, error) {
	return drivertest.Ways{Take: b.take, Join: b.join, Remove: b.remove}.Run(ctx, b.Backend, ops...)
}

func (b *reusesTokens) take(ctx context.Context, r driver.Request) (driver.Grant, bool, error) {
	g, taken, err := drivertest.Take(ctx, b.Backend, r)
	b.round(r.Name, r.Session, &g)
	return g, taken, err
}

func (b *reusesTokens) join(ctx context.Context, r driver.Request) (driver.Grant, protocol.Outcome, error) {
	g, outcome, err := drivertest.Join(ctx, b.Backend, r)
	b.round(r.Name, r.Session, &g)
	return g, outcome, err
}

func (b *reusesTokens) Read(ctx context.Context, session string, names []string, waiters int) ([]driver.State, error) {
	states, err := b.Backend.Read(ctx, session, names, waiters)
	for i := range states {
		b.round(states[i].Name, states[i].Holder.Session, &states[i].Holder.Grant)
		for j := range states[i].Granted {
			b.round(states[i].Name, session, &states[i].Granted[j].Grant)
		}
	}
	return states, err
}

func (b *reusesTokens) roundAll(name string, next []driver.Handoff) {
	for i := range next {
		b.round(name, next[i].Session, &next[i].Grant)
	}
}

func (b *reusesTokens) remove(ctx context.Context, m driver.Removal) ([]driver.Handoff, bool, error) {
	if m.Cause == driver.ByHolder {
		m.Token = b.held(m.Held()).Token
	}
	next, left, err := drivertest.Remove(ctx, b.Backend, m)
	b.roundAll(m.Name, next)
	return next, left, err
}

// Upkeep takes the grants from the hints, so that they are looked up, and rounded.
func (b *reusesTokens) Upkeep(ctx context.Context, session string) (driver.Upkeep, error) {
	up, err := b.Backend.Upkeep(ctx, session)
	return drivertest.Ear{Upkeep: up,
		Hear: func(_ string, h driver.Hint) driver.Hint { return driver.Hint{Attempt: h.Attempt} }}, err
}

// beats has heartbeats of another kind.
type beats struct {
	driver.Backend
	beat func(u driver.Upkeep, ctx context.Context, session string, ttl time.Duration) (bool, error)
	mute bool // nor are there claims, which would find out
}

type beatsUpkeep struct {
	driver.Upkeep
	beats
}

func (b beats) Upkeep(ctx context.Context, session string) (driver.Upkeep, error) {
	u, err := b.Backend.Upkeep(ctx, session)
	return &beatsUpkeep{u, b}, err
}

func (u *beatsUpkeep) Heartbeat(ctx context.Context, session string, ttl time.Duration) (bool, error) {
	return u.beat(u.Upkeep, ctx, session, ttl)
}

func (b beats) Beat(ctx context.Context, session string, ttl time.Duration) (bool, error) {
	return b.beat(overPool{Backend: b.Backend}, ctx, session, ttl)
}

// overPool beats where there is no reserved connection.
type overPool struct {
	driver.Upkeep
	driver.Backend
}

func (o overPool) Heartbeat(ctx context.Context, session string, ttl time.Duration) (bool, error) {
	return o.Beat(ctx, session, ttl)
}

func (o overPool) Claims(ctx context.Context, session string, limit int) ([]driver.Claim, error) {
	return o.Backend.Claims(ctx, session, limit)
}

func (u *beatsUpkeep) Claims(ctx context.Context, session string, limit int) ([]driver.Claim, error) {
	if u.mute {
		return nil, driver.ErrRetry
	}
	return u.Upkeep.Claims(ctx, session, limit)
}

// dropsHandOffs also forgets that others wait: else one of them would hand the lock on.
type dropsHandOffs struct {
	driver.Backend
	db *sql.DB
}

func (b dropsHandOffs) Run(ctx context.Context, ops ...protocol.Op) ([]protocol.Result, error) {
	return drivertest.Ways{Remove: b.remove}.Run(ctx, b.Backend, ops...)
}

func (b dropsHandOffs) remove(ctx context.Context, m driver.Removal) ([]driver.Handoff, bool, error) {
	if m.Cause != driver.ByHolder {
		return drivertest.Remove(ctx, b.Backend, m)
	}
	_, err := b.db.ExecContext(ctx,
		fmt.Sprintf("UPDATE dblock_locks SET session_id = NULL, host = '', thread = '', attempt = '', waiters = 0 "+
			"WHERE name = '%s' AND session_id = '%s' AND token = %d", m.Name, m.Session, m.Token))
	return nil, true, err
}

type servesSecond struct {
	driver.Backend
	db *sql.DB
}

func (b servesSecond) Run(ctx context.Context, ops ...protocol.Op) ([]protocol.Result, error) {
	return drivertest.Ways{Remove: b.remove}.Run(ctx, b.Backend, ops...)
}

func (b servesSecond) remove(ctx context.Context, m driver.Removal) ([]driver.Handoff, bool, error) {
	if m.Cause == driver.ByHolder {
		if err := putBack(ctx, b.db, m.Name, ""); err != nil {
			return nil, false, err
		}
	}
	return drivertest.Remove(ctx, b.Backend, m)
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

type neverGivesBack struct{ driver.Backend }

func (b neverGivesBack) Run(ctx context.Context, ops ...protocol.Op) ([]protocol.Result, error) {
	return drivertest.Ways{Remove: b.remove}.Run(ctx, b.Backend, ops...)
}

func (b neverGivesBack) remove(ctx context.Context, m driver.Removal) ([]driver.Handoff, bool, error) {
	if m.Cause == driver.ByAttempt {
		return nil, false, nil
	}
	return drivertest.Remove(ctx, b.Backend, m)
}
