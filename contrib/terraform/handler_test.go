package tfstate

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/internal/testing/swallow"
)

const (
	first  = `{"version":4,"serial":1}`
	second = `{"version":4,"serial":2}`
)

// Each request goes to another process than the one before it.
func anywhere(t *testing.T, w world) {
	gone, a, b := w.server(), w.server(), w.server()
	gone.says(http.StatusNoContent, "GET", w.path, "")
	gone.says(http.StatusOK, "LOCK", w.path, lockInfo("ada"))
	require.NoError(t, gone.client.Close(t.Context())) // the lock outlives it

	a.says(http.StatusOK, "LOCK", w.path, lockInfo("ada")) // sent again, without an answer before
	b.names(b.says(http.StatusLocked, "LOCK", w.path, lockInfo("bob")), "ada", "ada@laptop")
	b.says(http.StatusOK, "LOCK", w.path+"/mail", lockInfo("bob"))
	a.says(http.StatusOK, "POST", w.path+"?ID=ada", first)
	b.says(http.StatusOK, "POST", w.path+"?ID=ada", first)
	for _, id := range []string{"?ID=bob", ""} {
		b.names(b.says(http.StatusLocked, "POST", w.path+id, second), "ada", "ada@laptop")
	}
	b.names(b.says(http.StatusLocked, "DELETE", w.path+"?ID=bob", ""), "ada", "ada@laptop")
	assert.Equal(t, a.says(http.StatusOK, "GET", w.path, ""), first)

	b.names(b.says(http.StatusLocked, "UNLOCK", w.path, lockInfo("bob")), "ada", "ada@laptop")
	for range 2 {
		b.says(http.StatusOK, "UNLOCK", w.path, lockInfo("ada"))
	}
	a.says(http.StatusConflict, "POST", w.path+"?ID=ada", second)
	a.says(http.StatusOK, "LOCK", w.path, lockInfo("bob"))
	a.says(http.StatusOK, "DELETE", w.path+"?ID=bob", "")
	b.says(http.StatusNoContent, "GET", w.path, "")
	b.says(http.StatusOK, "UNLOCK", w.path, "") // as Terraform's force-unlock
	a.says(http.StatusConflict, "POST", w.path+"?ID=bob", second)
}

func late(t *testing.T, w world) {
	a, b := w.server(), w.server()
	ctx, name := t.Context(), Name(w.path)
	a.says(http.StatusOK, "LOCK", w.path, lockInfo("ada"))
	late, err := a.holder(ctx, name) // a POST of the run gets so far, and no further
	require.NoError(t, err)
	if n, err := b.client.Break(ctx, name, "test"); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	b.says(http.StatusConflict, "POST", w.path+"?ID=ada", first)
	b.says(http.StatusOK, "LOCK", w.path, lockInfo("bob"))
	assert.ErrorIs(t, a.states.put(ctx, name, late.token, []byte(first)), errGone, "before a write")
	b.says(http.StatusOK, "POST", w.path+"?ID=bob", second)
	assert.ErrorIs(t, a.states.put(ctx, name, late.token, []byte(first)), errGone, "after a write")
	require.NoError(t, a.states.raise(ctx, name, late.token)) // so does a LOCK that was lost
	b.says(http.StatusOK, "POST", w.path+"?ID=bob", second)
	b.says(http.StatusOK, "UNLOCK", w.path, lockInfo("bob"))

	bob, _, err := a.states.get(ctx, name)
	require.NoError(t, err)
	assert.Equal(t, string(bob), second)
	b.says(http.StatusOK, "POST", w.path, first) // without locking
	assert.Equal(t, a.says(http.StatusOK, "GET", w.path, ""), first)
}

// MariaDB answers "OK, 0 rows", or with an empty list, where KILL QUERY has cut a statement short.
func unproven(t *testing.T, w world) {
	var statements swallow.Statements
	pool := statements.Pool(swallow.Connector(w.db.Driver(), w.DSN))
	t.Cleanup(func() { assert.NoError(t, pool.Close()) })
	ours, after := w.server(), w.server()
	ours.states.db = pool
	// answers sends a request again and again, each time with another statement swallowed.
	answers := func(method, query, body string) {
		t.Helper()
		for nth := 0; ; nth++ {
			statements.Arm(func(_ string, n int) bool { return n == nth })
			said := ours.says(http.StatusOK, method, w.path+query, body)
			if swallowed := statements.Disarm(); swallowed == "" {
				if nth == 0 {
					t.Error("no statement was swallowed")
				}
				return
			}
			if method == "GET" {
				assert.Equal(t, said, first)
			}
		}
	}
	for _, id := range []string{"ada", "bob"} { // a new row, and a row with an earlier token
		answers("LOCK", "", lockInfo(id))
		answers("POST", "?ID="+id, first)
		answers("GET", "", "")
		after.says(http.StatusOK, "UNLOCK", w.path, lockInfo(id))
		ours.says(http.StatusConflict, "POST", w.path+"?ID="+id, second)
	}
}

func unfinished(t *testing.T, w world) {
	a, b := w.server(), w.server()
	l, err := a.take(t.Context(), Name(w.path), dblock.Metadata(map[string]string{"ID": "ada"}))
	require.NoError(t, err)
	b.says(http.StatusServiceUnavailable, "LOCK", w.path, lockInfo("ada"))
	b.says(http.StatusServiceUnavailable, "UNLOCK", w.path, lockInfo("ada"))
	require.NoError(t, l.Detach(t.Context(), time.Hour))
	b.says(http.StatusOK, "LOCK", w.path, lockInfo("ada"))
	require.NoError(t, b.client.Close(t.Context()))
	a.says(http.StatusOK, "POST", w.path+"?ID=ada", first)
}

func application(t *testing.T, w world) {
	s := w.server()
	l, err := s.client.Lock(t.Context(), Name(w.path))
	require.NoError(t, err)
	id := fmt.Sprint("dblock/", l.Token())
	s.names(s.says(http.StatusLocked, "LOCK", w.path, lockInfo("ada")), id, "shop@ops-1")
	s.names(s.says(http.StatusLocked, "UNLOCK", w.path, ""), id, "shop@ops-1")
	s.names(s.says(http.StatusLocked, "POST", w.path, first), id, "shop@ops-1")
	require.NoError(t, l.Unlock(t.Context()))
	s.says(http.StatusOK, "LOCK", w.path, lockInfo("ada"))
}

func expires(t *testing.T, w world) {
	s := w.server(Expiry(time.Hour))
	s.says(http.StatusOK, "LOCK", w.path, lockInfo("ada"))
	lock, err := s.inspector.Lock(t.Context(), Name(w.path))
	require.NoError(t, err)
	if left := time.Until(lock.Holders[0].Until); left < 50*time.Minute || left > time.Hour {
		t.Errorf("it expires in %v", left)
	}
}

// GitLab's addresses, for which lock_method is POST and unlock_method is DELETE.
func addresses(t *testing.T, w world) {
	s, lock := w.server(), w.path+"/lock"
	s.says(http.StatusOK, "POST", lock, lockInfo("ada"))
	s.names(s.says(http.StatusLocked, "LOCK", w.path, lockInfo("bob")), "ada", "ada@laptop")
	s.says(http.StatusOK, "POST", w.path+"?ID=ada", first)
	s.names(s.says(http.StatusLocked, "DELETE", lock, lockInfo("bob")), "ada", "ada@laptop")
	s.names(s.says(http.StatusLocked, "DELETE", lock+"?ID=bob", ""), "ada", "ada@laptop")
	s.says(http.StatusOK, "DELETE", lock, lockInfo("ada"))
	s.says(http.StatusOK, "POST", lock, lockInfo("bob"))
	s.says(http.StatusOK, "DELETE", lock, "") // as Terraform's force-unlock
	s.says(http.StatusConflict, "POST", w.path+"?ID=bob", second)
	assert.Equal(t, s.says(http.StatusOK, "GET", w.path, ""), first)
}

// Broken by an address that means another state's lock.
func namedLock(t *testing.T, w world) {
	s, state := w.server(), w.path+"/lock"
	s.says(http.StatusOK, "LOCK", w.path, lockInfo("ada"))
	s.says(http.StatusNoContent, "GET", state, "")
	s.says(http.StatusOK, "LOCK", state, lockInfo("bob"))
	s.says(http.StatusOK, "POST", state+"?ID=bob", first)
	s.says(http.StatusOK, "PUT", state+"?ID=bob", second)
	assert.Equal(t, s.says(http.StatusOK, "GET", state, ""), second)
	s.says(http.StatusNoContent, "GET", w.path, "")
	s.names(s.says(http.StatusLocked, "POST", state, lockInfo("bob")), "ada", "ada@laptop") // GitLab's
	s.says(http.StatusOK, "UNLOCK", state, "")
	s.says(http.StatusOK, "POST", w.path+"?ID=ada", first)
	s.says(http.StatusConflict, "POST", state+"?ID=bob", first)
}

// The same methods at the state's own address: neither replaces the state.
func misdirected(t *testing.T, w world) {
	s := w.server()
	s.says(http.StatusOK, "POST", w.path, first)
	for _, method := range []string{"POST", "PUT", "DELETE"} {
		s.says(http.StatusBadRequest, method, w.path, lockInfo("ada"))
	}
	s.says(http.StatusOK, "LOCK", w.path, lockInfo("ada"))
	for _, id := range []string{"", "?ID=ada"} {
		s.says(http.StatusBadRequest, "DELETE", w.path+id, lockInfo("ada"))
	}
	s.says(http.StatusBadRequest, "DELETE", w.path, "")
	for _, body := range []string{
		"", "null", "[]", "{}", `"x"`, "<html>", `{"version":4}`, `{"serial":4}`, `{"version":"4","serial":1}`,
		`{"version":4,"serial":-1}`, `{"Version":4,"Serial":1}`, `{"encryption_version":0}`, first + first,
	} {
		s.says(http.StatusBadRequest, "POST", w.path+"?ID=ada", body)
	}
	s.says(http.StatusOK, "UNLOCK", w.path, lockInfo("ada"))
	s.says(http.StatusConflict, "DELETE", w.path+"?ID=ada", "")
	assert.Equal(t, s.says(http.StatusOK, "GET", w.path, ""), first)
	s.says(http.StatusOK, "POST", w.path, `{"serial":2,"lineage":"x","encrypted_data":"","encryption_version":"v0"}`)
}

// A browser is given no HTML, and pages of other origins cannot write.
func browsers(t *testing.T, w world) {
	s := w.server()
	request := func(method, path, body, site string) http.Header {
		t.Helper()
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("Sec-Fetch-Site", site)
		answer := httptest.NewRecorder()
		s.ServeHTTP(answer, r)
		if refused := answer.Code == http.StatusForbidden; refused != (site == "cross-site" && method != "GET") {
			t.Errorf("%s from %s: %d", method, site, answer.Code)
		}
		assert.Equal(t, answer.Header().Get("X-Content-Type-Options"), "nosniff", method)
		return answer.Header()
	}
	for _, site := range []string{"cross-site", "same-origin"} {
		assert.Equal(t, request("GET", w.path+"?%3Cscript%3E=1", "", site).Get("Content-Type"),
			"text/plain; charset=utf-8")
		request("POST", w.path, first, site)
		request("LOCK", w.path, lockInfo("ada"), site)
		request("UNLOCK", w.path, "", site)
		request("DELETE", w.path+"/lock", "", site)
	}
	assert.Equal(t, request("GET", w.path, "", "cross-site").Get("Content-Type"), "application/json")
}

func refused(t *testing.T, w world) {
	s := w.server(MaxState(1000))
	s.says(http.StatusNotFound, "GET", "/", "")
	s.says(http.StatusBadRequest, "LOCK", w.path, "no JSON")
	s.says(http.StatusBadRequest, "LOCK", w.path, "{}")
	s.says(http.StatusBadRequest, "POST", w.path, "")
	s.says(http.StatusBadRequest, "POST", "/lock", lockInfo("ada"))
	for _, address := range []string{
		"/%00", "/%ff", "/a%ff/lock", w.path + "?workspace=prod", w.path + "?ID=ada&workspace=prod", w.path + "?id=ada",
		w.path + "?ID=ada&ID=bob", w.path + "?ID=a;b", w.path + "?%",
	} {
		s.says(http.StatusBadRequest, "LOCK", address, lockInfo("ada"))
	}
	s.says(http.StatusRequestEntityTooLarge, "POST", w.path, strings.Repeat("x", 1001))
	s.says(http.StatusMethodNotAllowed, "PATCH", w.path, first)
	require.NoError(t, s.client.Close(t.Context()))
	s.says(http.StatusInternalServerError, "LOCK", w.path, lockInfo("ada"))
	for what, err := range map[string]error{
		"engine": assert.ErrOf(New(s.client, w.db, "oracle")),
		"client": assert.ErrOf(New(nil, w.db, w.Engine)),
		"expiry": assert.ErrOf(New(s.client, w.db, w.Engine, Expiry(time.Millisecond))),
		"size":   assert.ErrOf(New(s.client, w.db, w.Engine, MaxState(0))),
		"logger": assert.ErrOf(New(s.client, w.db, w.Engine, Logger(nil))),
	} {
		assert.ErrorIs(t, err, dblock.ErrInvalidOption, what)
	}
}
