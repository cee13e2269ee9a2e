package sqlite

import (
	"context"

	"github.com/dblock-go/dblock/gen/sqlitedb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

func (e *engine) Take(ctx context.Context, r driver.Request) (g driver.Grant, taken bool, err error) {
	how := writing{patience: patienceOf(r.Wait), commits: relaxed}
	_, err = e.write(ctx, how, func(ctx context.Context, w *writer) (c changed, err error) {
		c, g, taken, err = take(ctx, w, r)
		return c, err
	})
	if err != nil || !taken {
		return driver.Grant{}, false, err
	}
	return g, true, nil
}

// take is one statement where the whole name is taken without a rest.
func take(ctx context.Context, w *writer, r driver.Request) (c changed, g driver.Grant, taken bool, err error) {
	if r.Units == 0 && r.MinHold <= 0 {
		g, taken, err = takeFree(ctx, w, r)
		return changed{}, g, taken, err
	}
	c, err = change(ctx, w, driver.How{Name: r.Name, Make: true}, func(n *protocol.Name) error {
		g, taken = protocol.Take(n, r)
		return nil
	})
	return c, g, taken, err
}

func takeFree(ctx context.Context, w *writer, r driver.Request) (driver.Grant, bool, error) {
	row, taken, err := found(w.TakeLock(ctx, sqlitedb.TakeLockParams{
		Name: r.Name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
		More: int64(max(r.Members, 1) - 1), Lease: r.Lease.Microseconds(), Metadata: r.Metadata,
	}))
	if err != nil || !taken {
		return driver.Grant{}, false, err
	}
	w.keep(row.LastToken, row.AcquiredAt, 0)
	return driver.Grant{First: row.FirstToken, Token: row.LastToken, Lease: r.Lease}, true, nil
}

// Join has no short way: a client joins where it has found the name taken.
func (e *engine) Join(ctx context.Context, r driver.Request) (g driver.Grant, outcome driver.Outcome, err error) {
	_, err = e.Change(ctx, driver.How{Name: r.Name, Make: true, Wait: r.Wait}, func(n *protocol.Name) (err error) {
		g, outcome, err = protocol.Join(n, r)
		return err
	})
	if err != nil {
		return driver.Grant{}, 0, err
	}
	return g, outcome, nil
}

func (e *engine) Remove(ctx context.Context, r driver.Removal) (next []driver.Handoff, left bool, err error) {
	next, err = e.write(ctx, writing{commits: relaxed}, func(ctx context.Context, w *writer) (changed, error) {
		if r.Cause == driver.ByHolder && !r.Contended && !r.Shared {
			n, err := w.ReleaseIdle(ctx, sqlitedb.ReleaseIdleParams{Name: r.Name, Session: r.Session, Token: r.Token})
			if left = n > 0; err != nil || left {
				return changed{}, err
			}
		}
		return change(ctx, w, driver.How{Name: r.Name}, func(n *protocol.Name) (err error) {
			left, err = protocol.Remove(n, r)
			return err
		})
	})
	return next, left && err == nil, err
}

func (e *engine) Batch(ctx context.Context, takes []driver.Request, releases []driver.Held) (grants []driver.Grant, released []bool, err error) {
	how := writing{commits: relaxed}
	for _, r := range takes {
		how.patience = max(how.patience, patienceOf(r.Wait)) // 0 is without end
	}
	_, err = e.write(ctx, how, func(ctx context.Context, w *writer) (changed, error) {
		grants, released = make([]driver.Grant, len(takes)), make([]bool, len(releases))
		for i, r := range takes {
			var err error
			if _, grants[i], _, err = take(ctx, w, r); err != nil {
				return changed{}, err
			}
		}
		for i, h := range releases {
			var err error
			if released[i], err = releaseIdle(ctx, w, h); err != nil {
				return changed{}, err
			}
		}
		return changed{}, nil
	})
	if err != nil {
		return nil, nil, err
	}
	return grants, released, nil
}

// releaseIdle releases what nobody waits for.
func releaseIdle(ctx context.Context, w *writer, h driver.Held) (left bool, err error) {
	if !h.Shared {
		n, err := w.ReleaseIdle(ctx, sqlitedb.ReleaseIdleParams{Name: h.Name, Session: h.Session, Token: h.Token})
		return n > 0, err
	}
	_, err = change(ctx, w, driver.How{Name: h.Name}, func(n *protocol.Name) (err error) {
		if n.Waiters == 0 {
			left, err = protocol.Remove(n, protocol.Release(h, false, false))
		}
		return err
	})
	return left, err
}
