package httpidem_test

import (
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/contrib/httpidem"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/internal/testing/swallow"
	"github.com/dblock-go/dblock/migrate"
)

const key = `"8e03978e-40d5-43e8-bc93-6894a57f9324"`

// receipt pays, and answers with the body of the request.
func receipt(w http.ResponseWriter, r *http.Request, pay func()) {
	pay()
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Location", "/payments/1")
	w.Header().Set("Set-Cookie", "secret")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "paid %s", body)
}

func once(t *testing.T, w world) {
	user := httpidem.Scope(func(r *http.Request) string { return r.Header.Get("User") })
	one, _ := w.serve(w, receipt, []httpidem.Option{user})
	other, _ := w.serve(w, receipt, []httpidem.Option{user})
	first := post(t, one, key, "/payments", "10")
	is(t, first, http.StatusCreated, "paid 10")
	assert.Equal(t, first.Header().Get("Set-Cookie"), "secret")
	for _, same := range []string{key, strings.Trim(key, `"`)} {
		again := post(t, other, same, "/payments", "10")
		is(t, again, http.StatusCreated, "paid 10")
		assert.Equal(t, again.Header().Get("Location"), "/payments/1")
		assert.Equal(t, again.Header().Get("Idempotent-Replayed"), "true")
		assert.Equal(t, again.Header().Get("Set-Cookie"), "")
	}
	w.payments(1)
	is(t, post(t, one, key, "/payments", "11"), http.StatusUnprocessableEntity, `{"title":"Idempotency-Key is`)
	is(t, post(t, one, key, "/refunds", "10"), http.StatusUnprocessableEntity, `{"title":"Idempotency-Key is`)
	w.payments(1)
	is(t, post(t, one, key, "/payments", "11", "User", "bob"), http.StatusCreated, "paid 11")
	is(t, post(t, one, `"another"`, "/payments", "11"), http.StatusCreated, "paid 11")
	w.payments(3)
	for range 2 {
		is(t, post(t, one, "", "/payments", "12"), http.StatusCreated, "paid 12")
	}
	w.payments(5)
}

func atOnce(t *testing.T, w world) {
	began, finish := make(chan struct{}), make(chan struct{})
	slow, _ := w.serve(w, func(rw http.ResponseWriter, r *http.Request, pay func()) {
		close(began)
		<-finish
		receipt(rw, r, pay)
	}, nil)
	first := make(chan *httptest.ResponseRecorder, 1)
	go func() { first <- post(t, slow, key, "/payments", "10") }()
	<-began
	hasty, _ := w.serve(w, receipt, []httpidem.Option{httpidem.Wait(0)})
	refused := post(t, hasty, key, "/payments", "10")
	is(t, refused, http.StatusConflict, `{"title":"A request is outstanding`)
	assert.Equal(t, refused.Header().Get("Retry-After"), "1")
	patient, _ := w.serve(w, receipt, []httpidem.Option{httpidem.Wait(time.Minute)})
	second := make(chan *httptest.ResponseRecorder, 1)
	go func() { second <- post(t, patient, key, "/payments", "10") }()
	other := make(chan *httptest.ResponseRecorder, 1)
	ready, _ := w.serve(w, receipt, nil)
	go func() { other <- post(t, ready, `"another"`, "/payments", "11") }()
	close(finish)
	is(t, <-first, http.StatusCreated, "paid 10")
	is(t, <-other, http.StatusCreated, "paid 11")
	again := <-second
	is(t, again, http.StatusCreated, "paid 10")
	assert.Equal(t, again.Header().Get("Idempotent-Replayed"), "true")
	w.payments(2)
}

func failures(t *testing.T, w world) {
	fails := func(rw http.ResponseWriter, r *http.Request, pay func()) {
		pay()
		switch r.URL.Path {
		case "/panic":
			panic(http.ErrAbortHandler)
		case "/large":
			fmt.Fprint(rw, strings.Repeat("x", 101))
		case "/busy":
			rw.WriteHeader(http.StatusTooManyRequests)
		default:
			http.Error(rw, "failed", http.StatusInternalServerError)
		}
	}
	failing, _ := w.serve(w, fails, []httpidem.Option{httpidem.MaxAnswer(100)})
	working, _ := w.serve(w, receipt, nil)
	for i, path := range []string{"/panic", "/large", "/busy", "/other"} {
		key := `"of ` + path + `"`
		func() {
			defer func() { _ = recover() }()
			if status := post(t, failing, key, path, "10").Code; status < 429 || path == "/panic" {
				t.Errorf("%s: %d", path, status)
			}
		}()
		w.payments(i)
		is(t, post(t, working, key, path, "10"), http.StatusCreated, "paid 10")
		w.payments(i + 1)
	}
	absent, _ := w.serve(w, func(rw http.ResponseWriter, _ *http.Request, _ func()) { http.Error(rw, "no", 404) }, nil)
	is(t, post(t, absent, key, "/payments", "10"), http.StatusNotFound, "no")
	is(t, post(t, working, key, "/payments", "10"), http.StatusNotFound, "no")
	w.payments(4)
}

func notFinal(t *testing.T, w world) {
	working, _ := w.serve(w, receipt, nil)
	for i, status := range []int{401, 403, 408, 409, 423, 425, 429, 500, 503} {
		refusing, _ := w.serve(w, func(rw http.ResponseWriter, _ *http.Request, pay func()) {
			pay()
			http.Error(rw, "not now", status)
		}, nil)
		key := fmt.Sprintf("%q", fmt.Sprint("of ", status))
		is(t, post(t, refusing, key, "/payments", "10"), status, "not now")
		w.payments(i)
		is(t, post(t, working, key, "/payments", "10"), http.StatusCreated, "paid 10")
		w.payments(i + 1)
	}
}

func abandoned(t *testing.T, w world) {
	h, _ := w.serve(w, receipt, nil)
	for _, begins := range []string{"never", "late"} {
		is(t, post(t, h, key, "/payments", "10", "Hang", begins), http.StatusServiceUnavailable, `{"title":"The request was`)
		w.payments(0)
	}
	is(t, post(t, h, key, "/payments", "10"), http.StatusCreated, "paid 10")
	w.payments(1)
}

// MariaDB answers "OK, 0 rows", or with an empty list, where KILL QUERY has cut a statement short.
func TestAStatementThatDidNothingIsNotBelieved(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		t.Parallel()
		db, engine := prepare(t, d)
		var statements swallow.Statements
		pool := statements.Pool(swallow.Connector(db.Driver(), d.DSN))
		t.Cleanup(func() { assert.NoError(t, pool.Close()) })
		w := world{t, db, over(client(t, engine), httpidem.SQL(pool, d.Engine))}
		h, _ := w.serve(w, receipt, nil)
		nth := 0
		for swallowed := "yes"; swallowed != ""; nth++ {
			key := fmt.Sprintf("%q", fmt.Sprint(nth))
			hampered := func() (said *httptest.ResponseRecorder, swallowed string) {
				statements.Arm(func(_ string, n int) bool { return n == nth })
				said = post(t, h, key, "/payments", "10")
				return said, statements.Disarm()
			}
			var said *httptest.ResponseRecorder
			if said, swallowed = hampered(); said.Code != http.StatusCreated {
				is(t, said, http.StatusServiceUnavailable, `{"title":"The request was not completed"`)
				w.payments(nth)
				is(t, post(t, h, key, "/payments", "10"), http.StatusCreated, "paid 10")
			}
			w.payments(nth + 1)
			if said, _ := hampered(); said.Code != http.StatusCreated { // with an answer that is stored
				is(t, said, http.StatusServiceUnavailable, `{"title":"The request was not completed"`)
			}
			w.payments(nth + 1)
		}
		if nth < 3 {
			t.Error("hardly a statement was swallowed")
		}
	})
}

func withoutAnswer(t *testing.T, w world) {
	h, _ := w.serve(w, receipt, nil)
	lost := post(t, h, key, "/payments", "10", "Lose", "it")
	is(t, lost, http.StatusServiceUnavailable, `{"title":"The request was not completed"`)
	assert.Equal(t, lost.Header().Get("Retry-After"), "1")
	is(t, post(t, h, key, "/payments", "10"), http.StatusCreated, "paid 10")
	w.payments(1)
}

func ended(t *testing.T, w world) {
	h, _ := w.serve(w, receipt, nil)
	is(t, post(t, h, key, "/payments", "10", "End", "it"), http.StatusServiceUnavailable, `{"title":"The request was not`)
	w.payments(0)
	is(t, post(t, h, key, "/payments", "10"), http.StatusCreated, "paid 10")
	w.payments(1)
}

func expires(t *testing.T, w world) {
	h, m := w.serve(w, receipt, []httpidem.Option{httpidem.Keep(time.Hour)})
	answers := func(want int) {
		t.Helper()
		var n int
		require.NoError(t, w.db.QueryRowContext(t.Context(), "SELECT count(*) FROM dblock_answers").Scan(&n))
		assert.Equal(t, n, want, "answers")
	}
	later := func() {
		require.NoError(t, require.ErrOf(w.db.ExecContext(t.Context(),
			"UPDATE dblock_answers SET expires = expires - 3601")))
	}
	is(t, post(t, h, key, "/payments", "10"), http.StatusCreated, "paid 10")
	later()
	is(t, post(t, h, key, "/payments", "11"), http.StatusCreated, "paid 11")
	w.payments(2)
	require.NoError(t, m.Sweep(t.Context()))
	answers(1)
	later()
	require.NoError(t, m.Sweep(t.Context()))
	answers(0)
}

func refused(t *testing.T, w world) {
	h, _ := w.serve(w, receipt, []httpidem.Option{
		httpidem.Required(), httpidem.MaxBody(100), httpidem.Page("https://example.com/keys"),
	})
	for _, key := range []string{"", `"`, `""`, `"a`, `a"b`, `a\b`, "ä", strings.Repeat("a", 256)} {
		is(t, post(t, h, key, "/payments", "10"), http.StatusBadRequest, `{"type":"https://example.com/keys","title":"Ide`)
	}
	is(t, post(t, h, key, "/payments", strings.Repeat("x", 101)), http.StatusRequestEntityTooLarge, `{"type":`)
	w.payments(0)
}

func TestWrongOptionsAreRefused(t *testing.T) {
	c := dblocktest.New[*sql.Tx](t).Client
	var none *dblock.Client[*sql.Tx]
	db := httpidem.SQL(nil, migrate.SQLite)
	for what, err := range map[string]error{
		"client": assert.ErrOf(httpidem.New(none, db)),
		"db":     assert.ErrOf(httpidem.New(c, nil)),
		"engine": assert.ErrOf(httpidem.New(c, httpidem.SQL(nil, "oracle"))),
		"scope":  assert.ErrOf(httpidem.New(c, db, httpidem.Scope(nil))),
		"wait":   assert.ErrOf(httpidem.New(c, db, httpidem.Wait(-1))),
		"keep":   assert.ErrOf(httpidem.New(c, db, httpidem.Keep(1))),
		"answer": assert.ErrOf(httpidem.New(c, db, httpidem.MaxAnswer(-1))),
	} {
		assert.ErrorIs(t, err, dblock.ErrInvalidOption, what)
	}
}
