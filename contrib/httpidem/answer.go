package httpidem

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
)

// errTooLarge says that an answer is larger than MaxAnswer.
var errTooLarge = errors.New("the answer is larger than MaxAnswer")

// answer is the answer of a handler. It is kept in memory until the transaction has committed.
type answer struct {
	header http.Header
	status int // 0: not yet written
	body   []byte
	most   int
	large  bool
}

// Header returns the header that the handler sets.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader keeps the first final status.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= http.StatusOK {
		a.status = status
	}
}

// Write appends to the body.
func (a *answer) Write(part []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if a.large = a.large || len(a.body)+len(part) > a.most; a.large {
		return 0, errTooLarge
	}
	a.body = append(a.body, part...)
	return len(part), nil
}

// final reports whether a request that is sent again gets the same answer. Other answers are about
// the moment or the caller: the request may succeed once a lock is free, or the caller logged in.
func (a *answer) final() bool {
	switch a.status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusConflict,
		http.StatusLocked, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return a.status < http.StatusInternalServerError
}

// send sends the answer.
func (a *answer) send(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body)
}

// stored returns the header as it is stored: a cookie is for one client.
func (a *answer) stored() ([]byte, error) {
	header := a.header.Clone()
	header.Del("Set-Cookie")
	return json.Marshal(header)
}

// problem is an answer of the middleware, as RFC 9457 has it.
type problem struct {
	Type   string `json:"type,omitempty"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

// Error returns the problem as one line.
func (p problem) Error() string { return p.Title + ": " + p.Detail }

func (p problem) send(w http.ResponseWriter) {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // there is nothing in it that has no JSON
	}
	w.Header().Set("Content-Type", "application/problem+json")
	if p.Status == http.StatusConflict || p.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(text)
}
