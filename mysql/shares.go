package mysql

import (
	"context"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/transaction"
)

// restate updates the capacity of a locked row if its holders state different numbers: a release in
// an application's transaction does not.
func restate(ctx context.Context, q *mysqldb.Queries, name string, row *mysqldb.LockRowRow) error {
	if !row.Mixed {
		return nil
	}
	stated, err := q.Stated(ctx, name)
	if stated.Smallest > 0 {
		row.Capacity = int32(stated.Smallest)
	}
	row.Mixed = stated.Smallest < stated.Largest
	return err
}

// attemptOf finds the attempt by which a session holds a name, whose row is locked, with a token.
func attemptOf(ctx context.Context, q *mysqldb.Queries, row mysqldb.LockRowRow, h protocol.Held) (string, bool, error) {
	if !h.Shared {
		return row.Attempt, row.SessionID == h.Session && row.LastToken == h.Token, nil
	}
	share, there, err := find(ctx, q.FindShare, mysqldb.FindShareParams{Name: h.Name, Token: h.Token})
	return share.Attempt, there && share.SessionID == h.Session, err
}

// returnShare releases a share of a locked name without waiters.
func returnShare(ctx context.Context, q *mysqldb.Queries, h protocol.Held, row mysqldb.LockRowRow) (bool, error) {
	share, there, err := find(ctx, q.FindShare, mysqldb.FindShareParams{Name: h.Name, Token: h.Token})
	if err != nil || !there || share.SessionID != h.Session || row.SharedUnits == 0 {
		return false, err
	}
	dropped, err := q.DropShare(ctx, mysqldb.DropShareParams{Name: transaction.Hex(h.Name), Token: h.Token})
	if err := did(dropped, err, 1); err != nil {
		return false, err
	}
	return true, q.ReturnUnits(ctx, mysqldb.ReturnUnitsParams{Name: transaction.Hex(h.Name), Units: int64(share.Units)})
}

// notHeld returns err, or ErrNotHeld if err is nil.
func notHeld(err error) error {
	if err != nil {
		return err
	}
	return driver.ErrNotHeld
}
