//go:build unix

package fault

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
)

// Engines that are broken where names are shared.
const (
	bugOneTooMany          = "hands a share to one too many"
	bugWriterBeside        = "lets a writer in beside readers"
	bugReaderBeside        = "lets a reader in beside a writer"
	bugCountsOne           = "counts any number of permits as one"
	bugUpgradesBeside      = "makes a writer of a reader beside others"
	bugDowngradesToNothing = "gives the whole name back in a downgrade"
	bugLetsSmallPass       = "lets small requests pass a large one"
	bugLetsReadersPass     = "lets readers in past a waiting writer"
	bugForgetsUnits        = "does not count the units that come back"
	bugLeavesRoom          = "lets nobody in when there is room again"
)

// unseen grants some of what is not free.
type unseen struct {
	driver.Backend
	grants func(r driver.Request, s driver.State) bool
}

func (b unseen) Run(ctx context.Context, ops ...protocol.Op) ([]protocol.Result, error) {
	return drivertest.Ways{Take: b.take, Join: b.join}.Run(ctx, b.Backend, ops...)
}

func (b unseen) take(ctx context.Context, r driver.Request) (driver.Grant, bool, error) {
	g, taken, err := drivertest.Take(ctx, b.Backend, r)
	if err != nil || taken {
		return g, taken, err
	}
	return b.look(ctx, r)
}

func (b unseen) join(ctx context.Context, r driver.Request) (driver.Grant, protocol.Outcome, error) {
	if g, granted, err := b.look(ctx, r); granted || err != nil {
		return g, protocol.Done, err
	}
	return drivertest.Join(ctx, b.Backend, r)
}

func (b unseen) look(ctx context.Context, r driver.Request) (driver.Grant, bool, error) {
	states, err := b.Read(ctx, r.Session, []string{r.Name}, 0)
	if err == nil && len(states) > 0 && b.grants(r, states[0]) {
		return madeUp(r), true, nil
	}
	return driver.Grant{}, false, err
}

type countsOne struct{ driver.Backend }

func (b countsOne) Run(ctx context.Context, ops ...protocol.Op) ([]protocol.Result, error) {
	return drivertest.Ways{Take: b.take, Join: b.join}.Run(ctx, b.Backend, ops...)
}

func (b countsOne) take(ctx context.Context, r driver.Request) (driver.Grant, bool, error) {
	r.Units = min(r.Units, 1)
	return drivertest.Take(ctx, b.Backend, r)
}

func (b countsOne) join(ctx context.Context, r driver.Request) (driver.Grant, protocol.Outcome, error) {
	r.Units = min(r.Units, 1)
	return drivertest.Join(ctx, b.Backend, r)
}

// upgradesBeside has each transition see one reader alone. What drops its share has made a writer
// of it.
type upgradesBeside struct{ driver.Backend }

func (b upgradesBeside) Run(ctx context.Context, ops ...protocol.Op) ([]protocol.Result, error) {
	return drivertest.Ways{Other: b.other}.Run(ctx, b.Backend, ops...)
}

func (b upgradesBeside) other(ctx context.Context, op protocol.Op) (protocol.Result, error) {
	return driver.Do(ctx, b.Backend, besideOp{op})
}

type besideOp struct{ protocol.Op }

func (b besideOp) Run(n *protocol.Name) (protocol.Result, error) {
	readers := n.Units
	n.Units = min(n.Units, 1)
	result, err := b.Op.Run(n)
	if len(n.GoneShares) == 0 && n.Units == min(readers, 1) {
		n.Units = readers
	}
	return result, err
}

// downgradesToNothing drops the share that a downgrade has made.
type downgradesToNothing struct{ driver.Backend }

func (b downgradesToNothing) Run(ctx context.Context, ops ...protocol.Op) ([]protocol.Result, error) {
	return drivertest.Ways{Other: b.other}.Run(ctx, b.Backend, ops...)
}

func (b downgradesToNothing) other(ctx context.Context, op protocol.Op) (protocol.Result, error) {
	return driver.Do(ctx, b.Backend, toNothing{op})
}

type toNothing struct{ protocol.Op }

func (t toNothing) Run(n *protocol.Name) (protocol.Result, error) {
	holder := n.Session
	result, err := t.Op.Run(n)
	if err != nil || holder == "" || n.Session == holder || len(n.PutShares) == 0 || n.PutShares[0].Session != holder {
		return result, err
	}
	n.PutShares = n.PutShares[1:]
	n.Units--
	_, err = protocol.TakeOver(t.By(), t.On(), driver.Holder{}).Run(n)
	result.Next = n.Handoffs
	return result, err
}

type letsSmallPass struct {
	driver.Backend
	db *sql.DB
}

func (b letsSmallPass) Run(ctx context.Context, ops ...protocol.Op) ([]protocol.Result, error) {
	return drivertest.Ways{Remove: b.remove}.Run(ctx, b.Backend, ops...)
}

func (b letsSmallPass) remove(ctx context.Context, m driver.Removal) ([]driver.Handoff, bool, error) {
	if m.Cause == driver.ByHolder {
		err := putBack(ctx, b.db, m.Name,
			"AND units <> 1 AND EXISTS (SELECT 1 FROM dblock_waiters w WHERE w.name = '%[1]s' AND w.units = 1)")
		if err != nil {
			return nil, false, err
		}
	}
	return drivertest.Remove(ctx, b.Backend, m)
}

type letsReadersPass struct {
	driver.Backend
	db *sql.DB
}

func (b letsReadersPass) Run(ctx context.Context, ops ...protocol.Op) ([]protocol.Result, error) {
	return drivertest.Ways{Take: b.take}.Run(ctx, b.Backend, ops...)
}

func (b letsReadersPass) take(ctx context.Context, r driver.Request) (driver.Grant, bool, error) {
	g, taken, err := drivertest.Take(ctx, b.Backend, r)
	if err != nil || taken || r.Units == 0 {
		return g, taken, err
	}
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return g, false, err
	}
	defer tx.Rollback()
	err = tx.QueryRowContext(ctx, fmt.Sprintf(`UPDATE dblock_locks SET token = token + 1, shared_units = shared_units + 1
		WHERE name = '%s' AND session_id IS NULL AND shared_units > 0 AND waiters > 0 RETURNING token`, r.Name)).Scan(&g.Token)
	g.First = g.Token
	if err == nil {
		_, err = tx.ExecContext(ctx, fmt.Sprintf(`INSERT INTO dblock_shares (name, token, session_id, host, thread, attempt, units, acquired_at)
			VALUES ('%s', %d, '%s', '%s', '%s', '%s', 1, 0)`, r.Name, g.Token, r.Session, r.Host, r.Thread, r.Attempt))
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil { // mostly, that there is no reader, or no waiter
		return driver.Grant{}, false, nil
	}
	return g, true, nil
}

type forgetsUnits struct {
	driver.Backend
	db *sql.DB
}

func (b forgetsUnits) Run(ctx context.Context, ops ...protocol.Op) ([]protocol.Result, error) {
	return drivertest.Ways{Remove: b.remove}.Run(ctx, b.Backend, ops...)
}

func (b forgetsUnits) remove(ctx context.Context, m driver.Removal) ([]driver.Handoff, bool, error) {
	if m.Cause != driver.ByHolder || !m.Shared {
		return drivertest.Remove(ctx, b.Backend, m)
	}
	_, err := b.db.ExecContext(ctx, fmt.Sprintf("DELETE FROM dblock_shares WHERE name = '%s' AND token = %d", m.Name,
		m.Token))
	return nil, true, err
}

// leavesRoom releases units, and does not serve their waiters.
type leavesRoom struct {
	driver.Backend
	db *sql.DB
}

func (b leavesRoom) Run(ctx context.Context, ops ...protocol.Op) ([]protocol.Result, error) {
	return drivertest.Ways{Remove: b.remove}.Run(ctx, b.Backend, ops...)
}

func (b leavesRoom) remove(ctx context.Context, m driver.Removal) ([]driver.Handoff, bool, error) {
	if m.Cause != driver.ByHolder || !m.Shared {
		return drivertest.Remove(ctx, b.Backend, m)
	}
	share := fmt.Sprintf("FROM dblock_shares WHERE name = '%s' AND token = %d", m.Name, m.Token)
	_, err := b.db.ExecContext(ctx,
		fmt.Sprintf("UPDATE dblock_locks SET shared_units = shared_units - COALESCE((SELECT units %s), 0) WHERE "+
			"name = '%s'", share, m.Name))
	if err == nil {
		_, err = b.db.ExecContext(ctx, "DELETE "+share)
	}
	return nil, true, err
}
