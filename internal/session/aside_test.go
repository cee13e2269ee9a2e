package session

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/assert"
)

func TestAnAsideThatWaitsDelaysNoHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		session, _ := start(t, s)
		for range 8 {
			go func() {
				for session.Context().Err() == nil {
					_ = session.OnSideConn(t.Context(), func(ctx context.Context, _ driver.Upkeep) error {
						<-ctx.Done() // for a row
						return ctx.Err()
					})
				}
			}()
		}
		time.Sleep(3*ttl + ttl/beatsPerTTL/2)
		s.set(func() {
			if want := 3*beatsPerTTL + 1; s.beats != want || s.connects != 1 {
				t.Errorf("%d heartbeats in three TTLs, %d connections, want %d and 1", s.beats, s.connects, want)
			}
		})
		session.Stop(nil)
	})
}

func TestAnAsideGivesUpAfterTwoIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		session, _ := start(t, s)
		began := time.Now()
		err := session.OnSideConn(t.Context(), func(ctx context.Context, _ driver.Upkeep) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != 2*ttl/beatsPerTTL {
			t.Errorf("%v after %v", err, took)
		}
	})
}

func TestAnAsideThatFindsItsConnectionBrokenHasTheSessionLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		session, _ := start(t, s)
		synctest.Wait()
		err := session.OnSideConn(t.Context(),
			func(context.Context, driver.Upkeep) error { return driver.ErrUnavailable })
		synctest.Wait()
		if !errors.Is(err, driver.ErrUnavailable) || s.lists != 1 || s.beats != 2 {
			t.Errorf("%v, %d heartbeats, %d reconciliations", err, s.beats, s.lists)
		}
	})
}

func TestAnAsideOfASessionThatEndsSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		session, _ := start(t, s)
		synctest.Wait()
		began := make(chan struct{})
		got := make(chan error)
		go func() {
			got <- session.OnSideConn(t.Context(), func(ctx context.Context, _ driver.Upkeep) error {
				close(began)
				<-ctx.Done()
				return ctx.Err()
			})
		}()
		<-began
		session.Stop(ErrKilled)
		assert.ErrorIs(t, <-got, context.Canceled)
		assert.ErrorIs(t, session.OnSideConn(t.Context(), nil), ErrKilled)
	})
}
