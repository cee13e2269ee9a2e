//go:build unix

package fault

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
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

// unseen is the bug of granting some of what is not free.
func unseen(grants func(r protocol.Request, s driver.State) bool) func(*sql.DB) fakedb.Hook {
	return alone(func(ctx context.Context, c *fakedb.Call) error {
		var r protocol.Request
		take, takes := c.Op().(protocol.Take)
		join, joins := c.Op().(protocol.Join)
		switch {
		case takes:
			if err := c.Do(ctx); err != nil || c.Results[0].Done() {
				return err
			}
			r = take.Request
		case joins:
			r = join.Request
		default:
			return c.Do(ctx)
		}
		states, err := c.Engine.Read(ctx, r.Session, []string{r.Name}, 0)
		switch {
		case err != nil:
			return err
		case len(states) > 0 && grants(r, states[0]):
			c.Grant(madeUp(r))
		case joins:
			return c.Do(ctx)
		}
		return nil
	})
}

func countsOne(ctx context.Context, c *fakedb.Call) error {
	switch op := c.Op().(type) {
	case protocol.Take:
		op.Units = min(op.Units, 1)
		c.Ops = []protocol.Op{op}
	case protocol.Join:
		op.Units = min(op.Units, 1)
		c.Ops = []protocol.Op{op}
	}
	return c.Do(ctx)
}

// besideOp sees one reader alone. An op that drops its share has made a writer of it.
type besideOp struct{ protocol.Op }

func (b besideOp) Apply(n *protocol.Name) (protocol.Result, error) {
	readers := n.Units
	n.Units = min(n.Units, 1)
	result, err := b.Op.Apply(n)
	if len(n.GoneShares) == 0 && n.Units == min(readers, 1) {
		n.Units = readers
	}
	return result, err
}

// toNothing drops the share that a downgrade has made.
type toNothing struct{ protocol.Op }

func (t toNothing) Apply(n *protocol.Name) (protocol.Result, error) {
	holder := n.Session
	result, err := t.Op.Apply(n)
	if err != nil || holder == "" || n.Session == holder || len(n.PutShares) == 0 || n.PutShares[0].Session != holder {
		return result, err
	}
	n.PutShares = n.PutShares[1:]
	n.Units--
	_, err = protocol.TakeOver(t.By(), t.On(), protocol.Holder{}).Apply(n)
	result.Next = n.Handoffs
	return result, err
}

func letSmallPass(ctx context.Context, db *sql.DB, c *fakedb.Call, m protocol.Removal) error {
	return passOver(ctx, db, c, m,
		"AND units <> 1 AND EXISTS (SELECT 1 FROM dblock_waiters w WHERE w.name = '%[1]s' AND w.units = 1)")
}

func letsReadersPass(db *sql.DB) fakedb.Hook {
	return func(ctx context.Context, c *fakedb.Call) error {
		take, takes := c.Op().(protocol.Take)
		if err := c.Do(ctx); err != nil || !takes || c.Results[0].Done() || take.Units == 0 {
			return err
		}
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		var g protocol.Grant
		err = tx.QueryRowContext(ctx, fmt.Sprintf(`UPDATE dblock_locks SET token = token + 1, shared_units = shared_units + 1
			WHERE name = '%s' AND session_id IS NULL AND shared_units > 0 AND waiters > 0 RETURNING token`, take.Name)).Scan(&g.Token)
		g.First = g.Token
		if err == nil {
			_, err = tx.ExecContext(ctx, fmt.Sprintf(`INSERT INTO dblock_shares (name, token, session_id, host, thread, attempt, units, acquired_at)
				VALUES ('%s', %d, '%s', '%s', '%s', '%s', 1, 0)`, take.Name, g.Token, take.Session, take.Host, take.Thread, take.Attempt))
		}
		if err == nil {
			err = tx.Commit()
		}
		if err == nil { // an error is mostly that there is no reader, or no waiter
			c.Grant(g)
		}
		return nil
	}
}

func forgetUnits(ctx context.Context, db *sql.DB, c *fakedb.Call, m protocol.Removal) error {
	if !m.Shared {
		return c.Do(ctx)
	}
	_, err := db.ExecContext(ctx, fmt.Sprintf("DELETE FROM dblock_shares WHERE name = '%s' AND token = %d", m.Name,
		m.Token))
	c.Outcome(protocol.Done)
	return err
}

// leaveRoom releases units, and does not serve their waiters.
func leaveRoom(ctx context.Context, db *sql.DB, c *fakedb.Call, m protocol.Removal) error {
	if !m.Shared {
		return c.Do(ctx)
	}
	share := fmt.Sprintf("FROM dblock_shares WHERE name = '%s' AND token = %d", m.Name, m.Token)
	_, err := db.ExecContext(ctx,
		fmt.Sprintf("UPDATE dblock_locks SET shared_units = shared_units - COALESCE((SELECT units %s), 0) WHERE "+
			"name = '%s'", share, m.Name))
	if err == nil {
		_, err = db.ExecContext(ctx, "DELETE "+share)
	}
	c.Outcome(protocol.Done)
	return err
}
