package mysql

import (
	"context"

	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/transaction"
)

// listed is a row of dblock_shares or dblock_waiters, in a list that a statement reads. sqlc does
// not know JSON_TABLE.
type listed struct {
	Number   int64  `json:"n"` // the token or the ticket
	Session  string `json:"s"`
	Host     string `json:"h"`
	Thread   string `json:"t"`
	Attempt  string `json:"a"`
	Metadata string `json:"m"`
	Units    int    `json:"u"`
	Of       int    `json:"o"`
	Since    int64  `json:"b"`
	Ends     *int64 `json:"e,omitempty"`
	Asked    string `json:"q,omitempty"`
	Unseen   int8   `json:"x"`
	Lease    int64  `json:"l"`
	MinHold  int64  `json:"r"`
	Members  int    `json:"k"`
}

// A DELETE joins its list to the table in this order, by an index that it forces: it finds each row
// by its whole key. A list of keys (IN) would be a range, or a scan of a small table, which waits
// for rows of other names.
const (
	dropShares = `-- name: DropShares :execrows
DELETE s FROM JSON_TABLE(CONVERT(? USING utf8mb4), '$[*]' COLUMNS (number BIGINT PATH '$.n')) j
  STRAIGHT_JOIN dblock_shares s FORCE INDEX (PRIMARY) ON s.name = UNHEX(CONVERT(? USING latin1)) AND s.token = j.number`
	dropPlaces = `-- name: DropPlaces :execrows
DELETE w FROM JSON_TABLE(CONVERT(? USING utf8mb4), '$[*]' COLUMNS (number BIGINT PATH '$.n')) j
  STRAIGHT_JOIN dblock_waiters w FORCE INDEX (PRIMARY) ON w.name = UNHEX(CONVERT(? USING latin1)) AND w.ticket = j.number`
	putShares = `-- name: PutShares :execrows
INSERT INTO dblock_shares (name, token, session_id, host, thread, attempt, units, capacity, acquired_at, expires_at, metadata, asked, unseen)
SELECT UNHEX(CONVERT(? USING latin1)), j.number, j.session_id, j.host, j.thread, j.attempt, j.units, j.capacity, j.since, j.expires_at, j.metadata,
       j.asked, j.unseen
  FROM JSON_TABLE(CONVERT(? USING utf8mb4), '$[*]' COLUMNS (number BIGINT PATH '$.n', session_id VARCHAR(32) PATH '$.s', host TEXT PATH '$.h',
         thread TEXT PATH '$.t', attempt VARCHAR(32) PATH '$.a', metadata MEDIUMTEXT PATH '$.m', units INT PATH '$.u', capacity INT PATH '$.o',
         since BIGINT PATH '$.b', expires_at BIGINT PATH '$.e', asked TEXT PATH '$.q', unseen INT PATH '$.x')) j`
	putPlaces = `-- name: PutPlaces :execrows
INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at, units, capacity, min_hold, members)
SELECT UNHEX(CONVERT(? USING latin1)), j.number, j.session_id, j.host, j.thread, j.attempt, j.lease, j.metadata, j.since, j.units, j.capacity,
       j.min_hold, j.members
  FROM JSON_TABLE(CONVERT(? USING utf8mb4), '$[*]' COLUMNS (number BIGINT PATH '$.n', session_id VARCHAR(32) PATH '$.s', host TEXT PATH '$.h',
         thread TEXT PATH '$.t', attempt VARCHAR(32) PATH '$.a', metadata MEDIUMTEXT PATH '$.m', units INT PATH '$.u', capacity INT PATH '$.o',
         since BIGINT PATH '$.b', lease BIGINT PATH '$.l', min_hold BIGINT PATH '$.r', members INT PATH '$.k')) j`
)

// listOf lists places or shares.
func listOf[T any](rows []T, as func(T) listed) []listed {
	list := make([]listed, len(rows))
	for i, row := range rows {
		list[i] = as(row)
	}
	return list
}

func (w writer) listShare(s protocol.Share) listed {
	row := listed{
		Number: s.Token, Session: s.Session, Host: s.Host, Thread: s.Thread, Attempt: s.Attempt,
		Metadata: plainJSON(s.Metadata), Units: s.Units, Of: s.Of, Since: s.Since, Asked: s.Asked,
		Unseen: unseen(w.self, s.Session),
	}
	if s.Ends != 0 {
		row.Ends = &s.Ends
	}
	return row
}

func listPlace(p protocol.Place) listed {
	return listed{
		Number: p.Ticket, Session: p.Session, Host: p.Host, Thread: p.Thread, Attempt: p.Attempt,
		Metadata: plainJSON(p.Metadata), Units: p.Units, Of: p.Of, Since: p.Since,
		Lease: p.Lease.Microseconds(), MinHold: p.MinHold.Microseconds(), Members: max(p.Members, 1),
	}
}

// drop runs a statement that deletes the rows of a list.
func (w writer) drop(ctx context.Context, text, name string, list []listed) error {
	return w.list(ctx, len(list), text, ascii(list), transaction.Hex(name))
}

// put runs a statement that inserts the rows of a list.
func (w writer) put(ctx context.Context, text, name string, list []listed) error {
	return w.list(ctx, len(list), text, transaction.Hex(name), ascii(list))
}

// list runs a statement that must change so many rows.
func (w writer) list(ctx context.Context, many int, text string, args ...any) error {
	result, err := w.db.ExecContext(ctx, text, args...)
	if err != nil {
		return err
	}
	changed, err := result.RowsAffected()
	return did(changed, err, many)
}
