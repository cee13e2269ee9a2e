package postgres

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/pgserver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// firstPage is the number of places that are read together with the row of a name: as many as a
// hand-over reads at once.
const firstPage = 16

// lowestTicket is below all tickets. It is not math.MinInt64: a driver that writes parameters into
// the statement (bun's pgdriver) would write that as the negative of a number out of range.
const lowestTicket = -math.MaxInt64

// source reads a name whose row its transaction has locked. It implements protocol.Source.
type source struct {
	ctx     context.Context
	tx      runner
	name    string
	locked  bool // the name has a row
	row     postgresdb.ReadNameRow
	before  protocol.Row
	most    int              // the number of places in the first page
	first   []protocol.Place // the first page
	tokens  []int64          // of the shares that the op releases
	shares  []protocol.Share // those of them that are there
	expired string           // the session found dead, in case a guard refuses its takeover
	wanted  string           // the attempt whose guard refused a takeover that is to be announced
}

// runner runs statements in a transaction, in their order.
type runner interface {
	exec(ctx context.Context, s ...statement) error
}

// open locks the name's row, and reads it together with the clock, the first page of the queue, and
// the shares that the op releases. The reads of a row that could not be locked do not count: the
// row may be newer than the lock statement, and may change.
func (s *source) open(lock statement, op protocol.Op) []statement {
	var row struct{ Locked, Busy bool }
	s.most, s.tokens = firstPage, protocol.Released(op)
	if sequence, is := op.(protocol.Sequence); is {
		s.most = max(firstPage, len(sequence)+1)
	}
	statements := []statement{
		lock.inTurn(&row, func() { s.locked = row.Locked }),
		query(postgresdb.ReadName, s.name).found(&s.row, new(bool)),
		s.page(lowestTicket, s.most, &s.first),
	}
	if len(s.tokens) > 0 {
		statements = append(statements, s.sharesWith(s.tokens, &s.shares))
	}
	return statements
}

// read returns the name as it was read.
func (s *source) read() *protocol.Name {
	r := s.row
	s.before = protocol.Row{Name: s.name, Head: 1, Next: 1}
	if s.locked {
		s.before = protocol.Row{
			Name: s.name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
			First: r.FirstToken, Last: r.LastToken, Token: r.Token, Since: r.AcquiredAt, Ends: r.ExpiresAt,
			Rests:    r.RestsUntil,
			Metadata: r.Metadata, Asked: r.Asked, Units: int(r.SharedUnits), Capacity: int(r.Capacity), Mixed: r.Mixed,
			Waiters: int(r.Waiters), Head: r.FirstTicket, Next: r.NextTicket,
		}
	}
	return protocol.Open(s.before, r.Now, s)
}

func (s *source) exec(statements ...statement) error {
	return pgserver.Interpret(s.tx.exec(s.ctx, statements...))
}

// page reads places from a ticket on.
func (s *source) page(lowest int64, limit int, places *[]protocol.Place) statement {
	return readPlaces(query(postgresdb.Places, postgresdb.PlacesParams{Name: s.name, Lowest: lowest,
		Most: int32(limit)}), places)
}

// readPlaces appends the rows of a statement, which are those of Places, to places.
func readPlaces(s statement, places *[]protocol.Place) statement {
	var row postgresdb.PlacesRow
	return s.into(&row, func() {
		*places = append(*places, protocol.Place{
			Request: protocol.Request{
				Session: row.SessionID, Host: row.Host, Thread: row.Thread, Attempt: row.Attempt,
				Members: int(row.Members),
				Lease:   microseconds(row.Lease), Metadata: row.Metadata, MinHold: microseconds(row.MinHold),
				Units: int(row.Units), Of: int(row.Capacity),
			},
			Ticket: row.Ticket, Since: row.EnqueuedAt, Alive: row.Alive,
		})
	})
}

// Places implements protocol.Source. The first page answers if it has enough places.
func (s *source) Places(after int64, limit int) (places []protocol.Place, err error) {
	for _, p := range s.first {
		if p.Ticket > after && len(places) < limit {
			places = append(places, p)
		}
	}
	if len(places) == limit || len(s.first) < s.most {
		return places, nil
	}
	places = nil
	err = s.exec(s.page(after+1, limit, &places))
	return places, err
}

// Place implements protocol.Source.
func (s *source) Place(session, attempt string) (protocol.Place, bool, error) {
	var places []protocol.Place
	err := s.exec(readPlaces(query(postgresdb.PlaceOf, postgresdb.PlaceOfParams{
		Attempt: attempt, Name: s.name, Session: session,
	}), &places))
	return append(places, protocol.Place{})[0], len(places) > 0, err
}

// ShareOf implements protocol.Source.
func (s *source) ShareOf(session, attempt string) (protocol.Share, bool, error) {
	var shares []protocol.Share
	err := s.exec(readShares(query(postgresdb.Shares, postgresdb.SharesParams{
		Name: s.name, Session: session, Attempt: attempt,
	}), &shares))
	return append(shares, protocol.Share{})[0], len(shares) > 0, err
}

// Shares implements protocol.Source.
func (s *source) Shares(tokens ...int64) (shares []protocol.Share, err error) {
	switch {
	case len(tokens) == 0:
		err = s.exec(readShares(query(postgresdb.Shares, postgresdb.SharesParams{Name: s.name}), &shares))
	case slices.Equal(tokens, s.tokens):
		shares = s.shares
	default:
		err = s.exec(s.sharesWith(tokens, &shares))
	}
	return shares, err
}

func (s *source) sharesWith(tokens []int64, shares *[]protocol.Share) statement {
	of := postgresdb.SharesWithParams{Name: s.name, Tokens: list(tokens)}
	return readShares(query(postgresdb.SharesWith, of), shares)
}

// readShares appends the rows of a statement, which are those of Shares, to shares.
func readShares(s statement, shares *[]protocol.Share) statement {
	var row postgresdb.SharesRow
	return s.into(&row, func() {
		*shares = append(*shares, protocol.Share{
			Session: row.SessionID, Host: row.Host, Thread: row.Thread, Attempt: row.Attempt, Token: row.Token,
			Units: int(row.Units), Of: int(row.Capacity), Since: row.AcquiredAt, Ends: row.ExpiresAt,
			Metadata: row.Metadata, Asked: row.Asked,
		})
	})
}

// Tally implements protocol.Source.
func (s *source) Tally() (t protocol.Tally, err error) {
	var row postgresdb.TallyRow
	err = s.exec(query(postgresdb.Tally, s.name).into(&row, func() {
		t = protocol.Tally{
			Waiters: int(row.Waiters), Units: int(row.Units), First: row.Lowest, Last: row.Highest,
			Smallest: int(row.Smallest), Largest: int(row.Largest),
		}
	}))
	return t, err
}

// Expire implements protocol.Source.
func (s *source) Expire(session string) (dead bool, err error) {
	if dead, err = expire(s.ctx, s.tx, session); dead {
		s.expired = session
	}
	return dead, pgserver.Interpret(err)
}

var errGuarded = driver.Fail(driver.ErrGuarded,
	driver.Fail(driver.ErrBusy, errors.New("an open transaction has the guard's row locked")))

// Seize implements protocol.Source. Writing the guard's row fails a guarded transaction with an
// older snapshot.
func (s *source) Seize(attempt string, holdOff bool) error {
	var refused bool
	err := s.exec(query(postgresdb.SeizeGuard, attempt).into(&refused, func() {}))
	if err != nil || !refused {
		return err
	}
	if holdOff {
		s.wanted = attempt
	}
	return errGuarded
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// milliseconds formats a duration as a setting of the server.
func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) + "ms" }
