package reaper

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/dblock-go/dblock/internal/crash"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// sweeper is the state of one reaper.
type sweeper struct {
	config
	engine  driver.Backend
	after   string // the last name that the purge has passed; "" at its beginning
	report  Report
	refused error            // the first refusal of the database, after which the rest goes on
	passed  int              // the number of refusals
	full    bool             // a list of this sweep was as long as its limit
	expired []protocol.Event // the events of the locks that this sweep took from the dead, with Events

	// orphaned is true where the last list of orphans left some: the next sweep lists them again.
	// Sweeps beside those list orphans only with a purge, or after they have ended a session: the
	// list may read the rows of all names.
	orphaned bool
}

// sweep does each kind of work once, in batches of the given size. With purge it also purges one
// page of names. After a failure of one kind of work it still tries the others. It does nothing in
// tables that this build cannot work with.
func (s *sweeper) sweep(ctx context.Context, batch int, purge bool) (Report, error) {
	defer s.engine.Attend("", 0)()
	s.report, s.full, s.refused, s.passed = Report{}, false, nil, 0
	if err := s.engine.Validate(); err != nil {
		return s.report, err
	}
	schema, err := s.engine.Schema(ctx)
	if err == nil {
		err = schema.Check()
	}
	if err != nil {
		return s.report, err
	}
	err = driver.Join(s.bury(ctx, schema.Database), s.sessions(ctx, batch))
	if purge || s.orphaned || s.report.Expired > 0 {
		err = driver.Join(err, s.orphans(ctx, batch))
	}
	err = driver.Join(err, s.overdue(ctx, batch), s.write(ctx))
	err = driver.Join(err, s.refused)
	if purge {
		err = driver.Join(err, s.purge(ctx, batch), s.all(ctx, batch, "guards of locks that have ended",
			s.engine.DropGuards),
			s.all(ctx, batch, "old events and runs", func(ctx context.Context, limit int) (int, error) {
				return s.engine.PurgeRecords(ctx, s.history, limit)
			}))
	}
	return s.report, err
}

// bury ends the sessions whose processes have ended on this host. Their proofs remain until the
// next sweep: clients that wait for a guarded transaction of theirs look for them.
func (s *sweeper) bury(ctx context.Context, database string) error {
	host, _ := os.Hostname()
	folder := s.crash.Folder(s.engine.HostFolder, false, func() string { return database })
	for p := range folder.Ended(0) {
		burial, err := s.engine.Bury(ctx, p.Session, "reaper", crash.Because(host))
		switch {
		case burial == driver.Buried:
			s.report.Expired++
		case burial == driver.DeadAlready, err == nil && p.Old():
			p.Remove()
		case err != nil && !s.postponed(err):
			return fmt.Errorf("ending session %s of a process that has ended: %w", p.Session, err)
		}
	}
	return nil
}

// sessions ends the sessions that have expired.
func (s *sweeper) sessions(ctx context.Context, batch int) error {
	ids, err := s.engine.Expired(ctx, batch)
	if err != nil {
		return fmt.Errorf("listing expired sessions: %w", err)
	}
	s.full = len(ids) == batch
	for _, id := range ids {
		dead, err := s.engine.Expire(ctx, id)
		if err != nil && !s.postponed(err) {
			if err := s.passOver(fmt.Errorf("expiring session %s: %w", id, err)); err != nil {
				return err
			}
		}
		if dead { // otherwise a heartbeat came just in time
			s.report.Expired++
		}
	}
	return nil
}

// orphans takes the locks and places of sessions that are dead or have no row. Each takeover is a
// transaction of its own, which reads again before it decides: a session without a row lives as
// long as its heartbeat.
func (s *sweeper) orphans(ctx context.Context, batch int) error {
	s.orphaned = true // also after an error
	limit := batch * max(1, s.report.Expired)
	claims, err := s.engine.Orphans(ctx, limit)
	if err != nil {
		return fmt.Errorf("listing the locks of dead sessions: %w", err)
	}
	full, before := len(claims) == limit, s.report.Postponed+s.passed
	for _, c := range claims {
		if c.Token == 0 {
			var gone protocol.Result
			place := protocol.TakeOver("", c.Name, protocol.Holder{Session: c.Session, Attempt: c.Attempt})
			if gone, err = driver.Do(ctx, s.engine, place); gone.Done() {
				s.report.Dismissed++
				s.report.HandedOn += len(gone.Next) // waiters behind the place may fit where it did not
			}
		} else {
			err = s.reclaim(ctx, c.Name, protocol.Holder{Session: c.Session, Grant: protocol.Grant{Token: c.Token}})
		}
		if err != nil && !s.postponed(err) {
			if err := s.passOver(fmt.Errorf("taking %q from session %s: %w", c.Name, c.Session, err)); err != nil {
				return err
			}
		}
	}
	s.full = s.full || full
	s.orphaned = full || s.report.Postponed+s.passed > before
	return nil
}

func (s *sweeper) overdue(ctx context.Context, batch int) error {
	states, err := s.engine.Overdue(ctx, batch)
	if err != nil {
		return fmt.Errorf("listing expired leases: %w", err)
	}
	s.full = s.full || len(states) == batch
	for _, state := range states {
		if err := s.reclaim(ctx, state.Name, state.Holder); err != nil && !s.postponed(err) {
			if err := s.passOver(fmt.Errorf("ending the lease of %q: %w", state.Name, err)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *sweeper) reclaim(ctx context.Context, name string, holder protocol.Holder) error {
	taken, err := driver.Do(ctx, s.engine, protocol.TakeOver("", name, holder))
	if taken.Done() && s.events {
		s.expired = append(s.expired, protocol.Event{
			Name: name, Kind: "expired", Token: holder.Grant.Token, Session: holder.Session,
			Detail: "found by a reaper",
		})
	}
	switch {
	case err != nil || !taken.Done():
		return err
	case len(taken.Next) > 0:
		s.report.HandedOn += len(taken.Next)
	default:
		s.report.Freed++
	}
	return nil
}

// write records the events of the locks that were taken from the dead.
func (s *sweeper) write(ctx context.Context) error {
	events := s.expired
	s.expired = nil
	if len(events) == 0 {
		return nil
	}
	if err := s.engine.Record(ctx, events); err != nil {
		return fmt.Errorf("writing %d events: %w", len(events), err)
	}
	return nil
}

func (s *sweeper) purge(ctx context.Context, batch int) error {
	purged, next, err := s.engine.Purge(ctx, s.retention, s.after, batch)
	switch {
	case err == nil:
		if err := s.recount(ctx, next, batch); err != nil {
			return fmt.Errorf("recounting waiters and units: %w", err)
		}
		s.report.Purged, s.after = purged, next
	case !s.postponed(err):
		return fmt.Errorf("purging idle names: %w", err)
	}
	forgotten, err := s.engine.Forget(ctx, s.retention, batch)
	switch {
	case err == nil:
		s.report.Forgotten = forgotten
	case !s.postponed(err):
		return fmt.Errorf("forgetting dead sessions: %w", err)
	}
	return nil
}

// recount corrects the rows of names: those that have a queue or shares, and those on the page that
// ends with next.
func (s *sweeper) recount(ctx context.Context, next string, batch int) error {
	names, err := s.engine.Miscounted(ctx, s.after, next, batch)
	for _, name := range names {
		var corrected protocol.Result
		corrected, err = driver.Do(ctx, s.engine, protocol.Recount{Name: name})
		switch {
		case s.postponed(err):
			err = nil
		case err != nil:
			return err
		case corrected.Done():
			s.report.Recounted++
			s.report.HandedOn += len(corrected.Next)
			s.log.Warn("dblock: reaper: the row of a name did not agree with its queue and shares, and was corrected",
				"name", name)
		}
	}
	return err
}

// all deletes batch after batch until nothing is left, because more than one batch may be written
// between two sweeps.
func (s *sweeper) all(
	ctx context.Context, batch int, what string, some func(ctx context.Context, limit int) (int, error),
) error {
	for {
		deleted, err := some(ctx, batch)
		switch {
		case s.postponed(err):
			return nil
		case err != nil:
			return fmt.Errorf("deleting %s: %w", what, err)
		}
		s.report.Deleted += deleted
		if deleted < batch {
			return nil
		}
	}
}

// passOver records an error that is due to one session or name alone, so that the sweep goes on
// with the others. It returns any other error.
func (s *sweeper) passOver(err error) error {
	if driver.InDoubt(err) || errors.Is(err, driver.ErrUnavailable) {
		return err
	}
	if s.passed++; s.refused == nil {
		s.refused = err
	}
	return nil
}

// postponed counts work that another transaction is doing.
func (s *sweeper) postponed(err error) bool {
	if errors.Is(err, driver.ErrBusy) || errors.Is(err, driver.ErrRetry) {
		s.report.Postponed++
		return true
	}
	return false
}
