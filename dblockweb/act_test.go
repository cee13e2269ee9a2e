package dblockweb_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblockweb"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestBreakTakesFromTheHolderThatWasSeenAndFromNoOther(t *testing.T) {
	w := newWorld(t, dblockweb.Authorize(operator))
	seen := w.lock("n")
	confirm := w.linkTo(w.get("lock?name=n"), "break?")
	w.contains(w.get(confirm), "there:", fmt.Sprint(seen.Token()), `method="post"`,
		"pass the lock on in memory, this token stands for all of them")
	require.NoError(t, seen.Unlock(t.Context()))
	next := w.lock("n")
	form := url.Values{"name": {"n"}, "token": {fmt.Sprint(seen.Token())}, "reason": {"it looked dead"}}
	a := w.do("POST", "break", form)
	w.contains(a.body, "does not have this lock any more. Nothing was revoked")
	if err := context.Cause(next.Context()); a.status != http.StatusConflict || err != nil {
		t.Errorf("%d; the next holder: %v", a.status, err)
	}
	w.contains(w.get(confirm), "There is nothing to break")

	form.Set("token", fmt.Sprint(next.Token()))
	a = w.do("POST", "break", form)
	w.contains(a.body, "was revoked from the holder with token "+fmt.Sprint(next.Token()))
	<-next.Context().Done()
	if err := context.Cause(next.Context()); a.status != http.StatusOK || !errors.Is(err, dblock.ErrLost) {
		t.Errorf("%d; the holder: %v", a.status, err)
	}
	w.contains(w.get("events?kind=broken"), "alice: it looked dead")
	w.contains(w.do("POST", "break", form).body, "Nothing was revoked")
}

func TestBreakNeedsATokenAndAReason(t *testing.T) {
	w := newWorld(t, dblockweb.Authorize(operator))
	held := w.lock("n")
	token := fmt.Sprint(held.Token())
	for _, form := range []url.Values{
		{"name": {"n"}, "reason": {"why not"}},
		{"name": {"n"}, "reason": {"why not"}, "token": {"0"}},
		{"name": {"n"}, "reason": {"why not"}, "token": {"-1"}},
		{"name": {"n"}, "reason": {"why not"}, "token": {token + "x"}},
		{"name": {"n"}, "token": {token}},
		{"name": {"n"}, "token": {token}, "reason": {" "}},
		{"name": {"n"}, "token": {token}, "reason": {"\xff"}},
		{"token": {token}, "reason": {"why not"}},
	} {
		if a := w.do("POST", "break", form); a.status != http.StatusBadRequest {
			t.Errorf("%v: %d: %s", form, a.status, a.body)
		}
	}
	large := url.Values{"name": {"n"}, "token": {token}, "reason": {string(make([]byte, 70_000))}}
	if a := w.do("POST", "break", large); a.status != http.StatusBadRequest {
		t.Errorf("a large form: %d", a.status)
	}
	assert.NoError(t, context.Cause(held.Context()), "the holder")
}

func TestAskTellsTheHolder(t *testing.T) {
	w := newWorld(t, dblockweb.Authorize(operator))
	held := w.lock("n")
	w.contains(w.get(w.linkTo(w.get("lock?name=n"), "ask?")), "there:", `action="ask"`)
	a := w.do("POST", "ask", url.Values{"name": {"n"}, "reason": {"a deployment"}})
	w.contains(a.body, "was asked")
	if reason := <-held.Asked(); a.status != http.StatusOK || reason != "alice: a deployment" {
		t.Errorf("%d, %q", a.status, reason)
	}
	w.contains(w.get("lock?name=n"), "asked to release it: alice: a deployment")
	require.NoError(t, held.Unlock(t.Context()))
	if a := w.do("POST", "ask", url.Values{"name": {"n"},
		"reason": {"a deployment"}}); a.status != http.StatusConflict {
		t.Errorf("%d: %s", a.status, a.body)
	}
}

func TestAnInterventionWhileTheDatabaseIsAwaySaysSo(t *testing.T) {
	w := newWorld(t, dblockweb.Authorize(operator))
	held := w.lock("n")
	w.Down()
	a := w.do("POST", "break", url.Values{"name": {"n"}, "token": {fmt.Sprint(held.Token())}, "reason": {"why not"}})
	w.Up()
	w.lacks(a.body, "was revoked from", "does not have this lock")
	assert.Equal(t, a.status, http.StatusServiceUnavailable, a.body)
}

// acted is a Source that answers Ask and Break.
type acted struct {
	named
	act func(ctx context.Context) (holders int, err error)
}

func (a acted) Break(ctx context.Context, _, _ string, _ ...int64) (int, error) { return a.act(ctx) }

func (a acted) Ask(ctx context.Context, _, _ string) error {
	_, err := a.act(ctx)
	return err
}

// post sends the form of a page under a request's context.
func post(ctx context.Context, i dblockweb.Source, page string) *httptest.ResponseRecorder {
	form := url.Values{"name": {"n"}, "token": {"7"}, "reason": {"why not"}}
	r := httptest.NewRequestWithContext(ctx, "POST", "/"+page, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	dblockweb.HandlerOf(i, dblockweb.Authorize(operator)).ServeHTTP(w, r)
	return w
}

// The answer of a commit may be lost.
func TestAnInterventionThatFailsClaimsNoMoreThanIsKnown(t *testing.T) {
	ended := func(ctx context.Context) (int, error) {
		<-ctx.Done()
		return 0, fmt.Errorf("%w: %w", dblock.ErrNotAcquired, ctx.Err())
	}
	for _, c := range []struct {
		page, says, lacks string
		act               func(ctx context.Context) (int, error)
	}{
		{"break", "Not confirmed within 15s: the lock may have been revoked, or not. Look at the lock.",
			"was not revoked", ended},
		{"break", "can be the cause, or a slow database", "did not end", ended},
		{"break", "Not confirmed: the lock may have been revoked", "within", func(context.Context) (int,
			error) {
			return 0, dblock.ErrUnavailable
		}},
		{
			"break", "was revoked from the holder with token 7. The rest is not confirmed",
			"may have been",
			func(context.Context) (int, error) { return 1, dblock.ErrNotAcquired },
		},
		{"ask", "Not confirmed within 15s: the holder may have been asked", "guards", ended},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := post(t.Context(), acted{act: c.act}, c.page)
			w := &world{T: t}
			w.contains(a.Body.String(), c.says)
			w.lacks(a.Body.String(), c.lacks)
			assert.Equal(t, a.Code, http.StatusServiceUnavailable, c.says)
		})
	}
}

func TestAnInterventionDoesNotEndWithItsBrowser(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, page := range []string{"ask", "break"} {
		a := post(gone, acted{act: func(ctx context.Context) (int, error) {
			if end, bounded := ctx.Deadline(); !bounded || time.Until(end) > 15*time.Second {
				t.Errorf("%s: it ends at %v", page, end)
			}
			return 1, ctx.Err()
		}}, page)
		if a.Code != http.StatusOK {
			t.Errorf("%s: %d: %s", page, a.Code, a.Body)
		}
	}
}
