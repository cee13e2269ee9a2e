package mysql

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/mysqldb"
)

// The statements about many places at once, which are lists in JSON: sqlc does not know JSON_TABLE.

// queued is what a request writes into the queue.
type queued struct {
	Spare    int64  `json:"s"`
	Host     string `json:"h"`
	Thread   string `json:"t"`
	Attempt  string `json:"a"`
	Lease    int64  `json:"l"`
	MinHold  int64  `json:"r"`
	Passable int64  `json:"p"`
	Metadata string `json:"m"`
}

// columns are those of a list of queued.
const columns = `COLUMNS (place FOR ORDINALITY, spare BIGINT PATH '$.s', host TEXT PATH '$.h', thread TEXT PATH '$.t',
         attempt VARCHAR(32) PATH '$.a', lease BIGINT PATH '$.l', min_hold BIGINT PATH '$.r', passable INT PATH '$.p', metadata MEDIUMTEXT PATH '$.m')`

// joinRows is JoinQueue of many requests, each with a spare, with tickets in the order of the list.
const joinRows = `-- name: JoinRows :execrows
UPDATE (SELECT r.name, r.next_ticket, r.waiters, r.capacity FROM dblock_locks r FORCE INDEX (PRIMARY)
         WHERE r.name = ? AND r.session_id IS NOT NULL LIMIT 1 FOR UPDATE) s
  STRAIGHT_JOIN dblock_locks l FORCE INDEX (PRIMARY) ON l.name = s.name
  STRAIGHT_JOIN JSON_TABLE(CONVERT(? USING utf8mb4), '$[*]' ` + columns + `) j
  STRAIGHT_JOIN dblock_waiters w FORCE INDEX (PRIMARY) ON w.name = '' AND w.ticket = j.spare
   SET l.next_ticket = s.next_ticket + ?, l.waiters = s.waiters + ?, l.capacity = IF(s.waiters = 0, 0, s.capacity),
       w.name = s.name, w.ticket = s.next_ticket + j.place - 1, w.session_id = ?, w.host = j.host, w.thread = j.thread,
       w.attempt = j.attempt, w.lease = j.lease, w.metadata = j.metadata,
       w.enqueued_at = (SELECT c.now_us FROM dblock_clock c), w.units = 0, w.min_hold = j.min_hold, w.passable = j.passable`

// handRun is HandToHead where the holder is a run, or the head of the queue begins one. The members
// that were served are set aside with the head. It does nothing where a place was given up since
// the queue was read.
const handRun = `-- name: HandRun :execlastid
UPDATE (SELECT r.name, GREATEST(r.token + 1, (SELECT c.now_us FROM dblock_clock c)) AS token, r.waiters FROM dblock_locks r FORCE INDEX (PRIMARY)
         WHERE r.name = ? AND r.session_id = ? AND r.last_token = ? AND r.next_ticket - r.waiters = ?
           AND r.rests_until <= (SELECT c.now_us FROM dblock_clock c)
         LIMIT 1 FOR UPDATE) s
  STRAIGHT_JOIN dblock_locks l FORCE INDEX (PRIMARY) ON l.name = s.name
  STRAIGHT_JOIN JSON_TABLE(CONVERT(? USING utf8mb4), '$[*]' COLUMNS (ticket BIGINT PATH '$.t', spare BIGINT PATH '$.s', member BIGINT PATH '$.m')) j
  STRAIGHT_JOIN dblock_waiters w FORCE INDEX (PRIMARY) ON w.name = s.name AND w.ticket = j.ticket
   SET l.token = LAST_INSERT_ID(s.token + ?), l.first_token = s.token, l.last_token = s.token + ?,
       l.session_id = ?, l.host = ?, l.thread = ?, l.holds = 1, l.attempt = ?,
       l.acquired_at = (SELECT c.now_us FROM dblock_clock c), l.expires_at = NULL, l.metadata = ?, l.asked = NULL,
       l.waiters = s.waiters - ?, l.handed = ?,
       w.token = IF(j.spare = 0, s.token + j.member, 0), w.name = IF(j.spare = 0, s.name, ''), w.ticket = IF(j.spare = 0, j.ticket, j.spare),
       w.session_id = IF(j.spare = 0, w.session_id, ''), w.attempt = IF(j.spare = 0, w.attempt, CAST(j.spare AS CHAR CHARACTER SET ascii)),
       w.enqueued_at = IF(j.spare = 0, w.enqueued_at, (SELECT c.now_us FROM dblock_clock c))`

// placed is what becomes of a place that handRun changes: a spare, or that of a member.
type placed struct {
	Ticket int64 `json:"t"`
	Spare  int64 `json:"s"`
	Member int64 `json:"m"`
}

// handToRun returns the last token, and the tickets of the spares.
func handToRun(ctx context.Context, db mysqldb.DBTX, v driver.Vacancy, f front) (token int64, spares []int64, err error) {
	var list []placed
	for _, w := range append(slices.Clone(f.served), *f.head) {
		spare := rand.Int64()
		list, spares = append(list, placed{Ticket: w.Ticket, Spare: spare}), append(spares, spare)
	}
	for i, w := range f.members {
		list = append(list, placed{Ticket: w.Ticket, Member: int64(i) + 1})
	}
	w, more := f.head, len(f.members)
	result, err := db.ExecContext(ctx, handRun, v.Name, v.Session, v.Token, f.gone, ascii(list), more, more,
		w.SessionID, w.Host, w.Thread, w.Attempt, w.Metadata, len(spares), handed(v.Self, w.SessionID))
	if err != nil {
		return 0, nil, err
	}
	token, err = result.LastInsertId()
	return token, spares, err
}

// dropPlacesAt deletes places, each found by its whole key, as in DropWaiter.
const dropPlacesAt = `-- name: DropPlaces :exec
DELETE w FROM JSON_TABLE(CONVERT(? USING utf8mb4), '$[*]' COLUMNS (ticket BIGINT PATH '$')) j
  STRAIGHT_JOIN dblock_waiters w FORCE INDEX (PRIMARY) ON w.name = ? AND w.ticket = j.ticket`

// dropMembers deletes the places of members of a run. The row has yet to be written.
func dropMembers(ctx context.Context, db mysqldb.DBTX, name string, row *mysqldb.LockRowRow, members []mysqldb.MembersRow) error {
	row.Waiters = max(row.Waiters-int32(len(members)), 0)
	return dropPlaces(ctx, db, name, ticketsOf(members))
}

func dropPlaces(ctx context.Context, db mysqldb.DBTX, name string, tickets []int64) error {
	if len(tickets) == 0 {
		return nil
	}
	_, err := db.ExecContext(ctx, dropPlacesAt, ascii(tickets), name)
	return err
}

// addWaiters is AddWaiter of many requests, with tickets in the order of the list.
const addWaiters = `-- name: AddWaiters :exec
INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at, units, min_hold, passable)
SELECT ?, CAST(? AS SIGNED) + j.place - 1, ?, j.host, j.thread, j.attempt, j.lease, j.metadata, c.now_us, 0, j.min_hold, j.passable
  FROM JSON_TABLE(CONVERT(? USING utf8mb4), '$[*]' ` + columns + `) j
  JOIN dblock_clock c`

// addPlaces adds the places of requests with tickets from the first on.
func addPlaces(ctx context.Context, db mysqldb.DBTX, first int64, rs []driver.Request) error {
	if r := rs[0]; len(rs) == 1 {
		return mysqldb.New(db).AddWaiter(ctx, mysqldb.AddWaiterParams{
			Name: r.Name, Ticket: first, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
			Lease: r.Lease.Microseconds(), Metadata: plainJSON(r.Metadata), Units: int32(r.Units), Capacity: int32(r.Of), MinHold: r.MinHold.Microseconds(), Passable: r.Passable,
		})
	}
	_, err := db.ExecContext(ctx, addWaiters, rs[0].Name, first, rs[0].Session, ascii(queuedAs(rs, nil)))
	return err
}

// queuedAs lists what requests write into the queue, each with its spare if there are any.
func queuedAs(rs []driver.Request, spares []int64) []queued {
	list := make([]queued, len(rs))
	for i, r := range rs {
		list[i] = queued{
			Host: r.Host, Thread: r.Thread, Attempt: r.Attempt, Lease: r.Lease.Microseconds(), MinHold: r.MinHold.Microseconds(),
			Passable: number01(r.Passable), Metadata: plainJSON(r.Metadata),
		}
		if spares != nil {
			list[i].Spare = spares[i]
		}
	}
	return list
}

// errSpares: somebody has deleted spares, and the requests that were to get them do not queue.
var errSpares = errors.New("not all of the requests could join the queue")

// joinWithSpares joins the queue of a name that is held as a whole. 0: the name is not held, or the
// spares are gone. Where only some are, it is an error: each attempt has to be looked for.
func joinWithSpares(ctx context.Context, db mysqldb.DBTX, rs []driver.Request, spares []int64) (rows int64, err error) {
	result, err := db.ExecContext(ctx, joinRows, rs[0].Name, ascii(queuedAs(rs, spares)), len(rs), len(rs), rs[0].Session)
	if err != nil {
		return 0, err
	}
	rows, err = result.RowsAffected()
	if err == nil && rows > 0 && rows < int64(len(rs))+1 { // with the name's own
		err = driver.Fail(driver.ErrUnavailable, errSpares)
	}
	return rows, err
}
