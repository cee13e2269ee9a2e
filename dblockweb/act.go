package dblockweb

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dblock-go/dblock"
)

const (
	actTime  = 15 * time.Second // for Break, which waits for the transaction that a holder guards
	mostForm = 64 << 10         // bytes
)

// asking is the page that confirms Ask.
type asking struct{ dblock.Info }

// breaking is the page that confirms Break.
type breaking struct {
	dblock.Info
	Token  int64
	Holder *dblock.Party // that has the token; nil: nobody has it any more
}

// outcome is what came of an intervention.
type outcome struct {
	Name, Text string
	status     int
}

func loadAsk(ctx context.Context, q query) (any, error) {
	info, err := q.of.Inspect(ctx, q.get("name"))
	return asking{info}, err
}

func loadBreak(ctx context.Context, q query) (any, error) {
	b := breaking{}
	var err error
	if b.Token, err = tokenOf(q); err != nil {
		return nil, err
	}
	if b.Info, err = q.of.Inspect(ctx, q.get("name")); err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(b.Holders, func(p dblock.Party) bool { return p.Token == b.Token }); i >= 0 {
		b.Holder = &b.Holders[i]
	}
	return b, nil
}

// tokenOf is the token of the holder that was seen. Without one Break would take the name from
// whoever has it.
func tokenOf(q query) (int64, error) {
	token, err := strconv.ParseInt(q.get("token"), 10, 64)
	if err != nil || token < 1 {
		return 0, badRequest("The request names no token of a holder. Nothing was done.")
	}
	return token, nil
}

// act answers a POST.
func (h *handler) act(w http.ResponseWriter, r *http.Request, p *page, q query) {
	r.Body = http.MaxBytesReader(w, r.Body, mostForm)
	if err := r.ParseForm(); err != nil {
		http.Error(w, "The form cannot be read. Nothing was done.", http.StatusBadRequest)
		return
	}
	q.values = r.PostForm
	ctx, cancel := context.WithTimeout(r.Context(), actTime)
	defer cancel()
	v := view{Page: "done", Now: time.Now(), Access: q.access}
	done, err := p.post(ctx, q)
	if err != nil {
		v.Problem = err.Error()
		done = outcome{Name: q.get("name"), status: status(err)}
		if errors.Is(err, dblock.ErrNotAcquired) { // a transaction that the holder guards was waited for
			v.Problem = fmt.Sprintf("The holder guards a transaction that did not end within %v. The lock was not taken away: end that transaction, or try again.", actTime)
			done.status = http.StatusConflict
		}
	}
	v.Data = done
	h.pages["done"].write(w, done.status, v)
}

// reason is what the person wrote, after who it is.
func reason(q query) (string, error) {
	text := strings.TrimSpace(q.get("reason"))
	switch {
	case text == "":
		return "", badRequest("There is no reason: it is written into the history, and the holder is told. Nothing was done.")
	case q.access.By != "":
		return q.access.By + ": " + text, nil
	}
	return text, nil
}

func postAsk(ctx context.Context, q query) (outcome, error) {
	why, err := reason(q)
	if err != nil {
		return outcome{}, err
	}
	err = q.of.Ask(ctx, q.get("name"), why)
	if errors.Is(err, dblock.ErrNotHeld) {
		return outcome{q.get("name"), "Nobody holds this lock any more: there was nobody to ask.", http.StatusConflict}, nil
	}
	return outcome{q.get("name"), "The holder was asked to release this lock.", http.StatusOK}, err
}

func postBreak(ctx context.Context, q query) (outcome, error) {
	token, err := tokenOf(q)
	if err != nil {
		return outcome{}, err
	}
	why, err := reason(q)
	if err != nil {
		return outcome{}, err
	}
	holders, err := q.of.Break(ctx, q.get("name"), why, token)
	if holders == 0 {
		return outcome{
			q.get("name"), fmt.Sprintf("The holder with token %d does not have this lock any more. Nothing was taken away, from nobody.", token), http.StatusConflict,
		}, err
	}
	return outcome{q.get("name"), fmt.Sprintf("The lock was taken away from the holder with token %d. It is told, and the next waiter has the lock.", token), http.StatusOK}, err
}
