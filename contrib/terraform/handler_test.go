package tfstate

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

const (
	path   = "/prod/network"
	first  = `{"version":4,"serial":1}`
	second = `{"version":4,"serial":2}`
)

// Each request goes to another process than the one before it.
func TestARunLocksWritesAndUnlocksAtAnyProcess(t *testing.T) {
	each(t, func(t *testing.T, w world) {
		gone, a, b := w.server(), w.server(), w.server()
		gone.says(http.StatusNoContent, "GET", path, "")
		gone.says(http.StatusOK, "LOCK", path, lockInfo("ada"))
		require.NoError(t, gone.client.Close(t.Context())) // the lock outlives it

		a.says(http.StatusOK, "LOCK", path, lockInfo("ada")) // sent again, without an answer before
		b.names(b.says(http.StatusLocked, "LOCK", path, lockInfo("bob")), "ada", "ada@laptop")
		b.says(http.StatusOK, "LOCK", "/prod/mail", lockInfo("bob"))
		a.says(http.StatusOK, "POST", path+"?ID=ada", first)
		b.says(http.StatusOK, "POST", path+"?ID=ada", first)
		for _, id := range []string{"?ID=bob", ""} {
			b.names(b.says(http.StatusLocked, "POST", path+id, second), "ada", "ada@laptop")
			b.names(b.says(http.StatusLocked, "DELETE", path+id, ""), "ada", "ada@laptop")
		}
		assert.Equal(t, a.says(http.StatusOK, "GET", path, ""), first)

		b.names(b.says(http.StatusLocked, "UNLOCK", path, lockInfo("bob")), "ada", "ada@laptop")
		for range 2 {
			b.says(http.StatusOK, "UNLOCK", path, lockInfo("ada"))
		}
		a.says(http.StatusConflict, "POST", path+"?ID=ada", second)
		a.says(http.StatusOK, "LOCK", path, lockInfo("bob"))
		a.says(http.StatusOK, "DELETE", path+"?ID=bob", "")
		b.says(http.StatusNoContent, "GET", path, "")
		b.says(http.StatusOK, "UNLOCK", path, "") // as Terraform's force-unlock
		a.says(http.StatusConflict, "POST", path+"?ID=bob", second)
	})
}

func TestALateWriteNeverOverwritesANewerState(t *testing.T) {
	each(t, func(t *testing.T, w world) {
		a, b := w.server(), w.server()
		ctx, name := t.Context(), Name(path)
		a.says(http.StatusOK, "LOCK", path, lockInfo("ada"))
		late, err := a.holder(ctx, name) // a POST of the run gets so far, and no further
		require.NoError(t, err)
		if n, err := b.client.Break(ctx, name, "test"); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		b.says(http.StatusConflict, "POST", path+"?ID=ada", first)
		b.says(http.StatusOK, "LOCK", path, lockInfo("bob"))
		assert.ErrorIs(t, a.states.put(ctx, name, late.token, []byte(first)), errGone, "before a write")
		b.says(http.StatusOK, "POST", path+"?ID=bob", second)
		assert.ErrorIs(t, a.states.put(ctx, name, late.token, []byte(first)), errGone, "after a write")
		require.NoError(t, a.states.raise(ctx, name, late.token)) // so does a LOCK that was lost
		b.says(http.StatusOK, "POST", path+"?ID=bob", second)
		b.says(http.StatusOK, "UNLOCK", path, lockInfo("bob"))

		bob, err := a.states.get(ctx, name)
		require.NoError(t, err)
		assert.Equal(t, string(bob), second)
		b.says(http.StatusOK, "POST", path, first) // without locking
		assert.Equal(t, a.says(http.StatusOK, "GET", path, ""), first)
	})
}

func TestAnApplicationKeepsTerraformOut(t *testing.T) {
	each(t, func(t *testing.T, w world) {
		s := w.server()
		l, err := s.client.Lock(t.Context(), Name("prod/network"))
		require.NoError(t, err)
		id := fmt.Sprint("dblock/", l.Token())
		s.names(s.says(http.StatusLocked, "LOCK", path, lockInfo("ada")), id, "shop@ops-1")
		s.names(s.says(http.StatusLocked, "UNLOCK", path, ""), id, "shop@ops-1")
		s.names(s.says(http.StatusLocked, "POST", path, first), id, "shop@ops-1")
		require.NoError(t, l.Unlock(t.Context()))
		s.says(http.StatusOK, "LOCK", path, lockInfo("ada"))
	})
}

func TestALockExpires(t *testing.T) {
	each(t, func(t *testing.T, w world) {
		s := w.server(Expiry(time.Hour))
		s.says(http.StatusOK, "LOCK", path, lockInfo("ada"))
		lock, err := s.inspector.Lock(t.Context(), Name(path))
		require.NoError(t, err)
		if left := time.Until(lock.Holders[0].Until); left < 50*time.Minute || left > time.Hour {
			t.Errorf("it expires in %v", left)
		}
	})
}

func TestWrongRequestsAreRefused(t *testing.T) {
	each(t, func(t *testing.T, w world) {
		if w.Kind != dbtest.KindSQLite {
			return // they do not reach the database
		}
		s := w.server(MaxState(1000))
		s.says(http.StatusNotFound, "GET", "/", "")
		s.says(http.StatusBadRequest, "LOCK", path, "no JSON")
		s.says(http.StatusBadRequest, "LOCK", path, "{}")
		s.says(http.StatusBadRequest, "POST", path, "")
		s.says(http.StatusBadRequest, "LOCK", "/%00", lockInfo("ada"))
		s.says(http.StatusRequestEntityTooLarge, "POST", path, strings.Repeat("x", 1001))
		s.says(http.StatusMethodNotAllowed, "PATCH", path, first)
		require.NoError(t, s.client.Close(t.Context()))
		s.says(http.StatusInternalServerError, "LOCK", path, lockInfo("ada"))
		for what, err := range map[string]error{
			"engine": assert.ErrOf(New(s.client, w.db, "oracle")),
			"client": assert.ErrOf(New(nil, w.db, w.Engine)),
			"expiry": assert.ErrOf(New(s.client, w.db, w.Engine, Expiry(time.Millisecond))),
			"size":   assert.ErrOf(New(s.client, w.db, w.Engine, MaxState(0))),
			"logger": assert.ErrOf(New(s.client, w.db, w.Engine, Logger(nil))),
		} {
			assert.ErrorIs(t, err, dblock.ErrInvalidOption, what)
		}
	})
}
