//go:build unix

package fault

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/drivertest"
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

func (b unseen) Take(ctx context.Context, r driver.Request) (driver.Grant, bool, error) {
	g, taken, err := b.Backend.Take(ctx, r)
	if err != nil || taken {
		return g, taken, err
	}
	return b.look(ctx, r)
}

func (b unseen) Enqueue(ctx context.Context, rs ...driver.Request) (driver.Grant, driver.Outcome, error) {
	if g, granted, err := b.look(ctx, rs[0]); (granted || err != nil) && len(rs) == 1 {
		return g, driver.Granted, err
	}
	return b.Backend.Enqueue(ctx, rs...)
}

func (b unseen) look(ctx context.Context, r driver.Request) (driver.Grant, bool, error) {
	states, err := b.Look(ctx, r.Session, []string{r.Name})
	if err == nil && len(states) > 0 && b.grants(r, states[0]) {
		return driver.Grant{Token: time.Now().UnixMicro()}, true, nil
	}
	return driver.Grant{}, false, err
}

type countsOne struct{ driver.Backend }

func (b countsOne) Take(ctx context.Context, r driver.Request) (driver.Grant, bool, error) {
	r.Units = min(r.Units, 1)
	return b.Backend.Take(ctx, r)
}

func (b countsOne) Enqueue(ctx context.Context, rs ...driver.Request) (driver.Grant, driver.Outcome, error) {
	rs[0].Units = min(rs[0].Units, 1)
	return b.Backend.Enqueue(ctx, rs...)
}

type upgradesBeside struct{ driver.Backend }

func (b upgradesBeside) Upgrade(ctx context.Context, h driver.Held, attempt string) (driver.Grant, bool, error) {
	g, got, err := b.Backend.Upgrade(ctx, h, attempt)
	if err == nil && !got {
		return driver.Grant{Token: time.Now().UnixMicro()}, true, nil
	}
	return g, got, err
}

type downgradesToNothing struct{ driver.Backend }

func (b downgradesToNothing) Downgrade(ctx context.Context, h driver.Held) ([]driver.Handoff, error) {
	return drivertest.Release(ctx, b, h, true)
}

type letsSmallPass struct {
	driver.Backend
	db *sql.DB
}

func (b letsSmallPass) Vacate(ctx context.Context, v driver.Vacancy) ([]driver.Handoff, bool, error) {
	if v.Cause == driver.ByHolder {
		_, err := b.db.ExecContext(ctx, fmt.Sprintf(`UPDATE dblock_waiters SET ticket = ticket + 1000000 WHERE name = '%s' AND units <> 1
			AND ticket = (SELECT min(w.ticket) FROM dblock_waiters w WHERE w.name = '%[1]s' AND w.ticket < 1000000)
			AND EXISTS (SELECT 1 FROM dblock_waiters w WHERE w.name = '%[1]s' AND w.units = 1)`, v.Name))
		if err != nil {
			return nil, false, err
		}
	}
	return b.Backend.Vacate(ctx, v)
}

type letsReadersPass struct {
	driver.Backend
	db *sql.DB
}

func (b letsReadersPass) Take(ctx context.Context, r driver.Request) (driver.Grant, bool, error) {
	g, taken, err := b.Backend.Take(ctx, r)
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

func (b forgetsUnits) Vacate(ctx context.Context, v driver.Vacancy) ([]driver.Handoff, bool, error) {
	if v.Cause != driver.ByHolder || !v.Shared {
		return b.Backend.Vacate(ctx, v)
	}
	_, err := b.db.ExecContext(ctx, fmt.Sprintf("DELETE FROM dblock_shares WHERE name = '%s' AND token = %d", v.Name, v.Token))
	return nil, true, err
}

// leavesRoom releases units, and does not serve their waiters.
type leavesRoom struct {
	driver.Backend
	db *sql.DB
}

func (b leavesRoom) Vacate(ctx context.Context, v driver.Vacancy) ([]driver.Handoff, bool, error) {
	if v.Cause != driver.ByHolder || !v.Shared {
		return b.Backend.Vacate(ctx, v)
	}
	share := fmt.Sprintf("FROM dblock_shares WHERE name = '%s' AND token = %d", v.Name, v.Token)
	_, err := b.db.ExecContext(ctx, fmt.Sprintf("UPDATE dblock_locks SET shared_units = shared_units - COALESCE((SELECT units %s), 0) WHERE name = '%s'", share, v.Name))
	if err == nil {
		_, err = b.db.ExecContext(ctx, "DELETE "+share)
	}
	return nil, true, err
}
