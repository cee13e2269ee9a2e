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
	"github.com/dblock-go/dblock/inspect"
)

const (
	actTime  = 15 * time.Second // for Break, which waits for a transaction that the holder guards
	mostForm = 64 << 10         // bytes
)

// asking is the page that confirms Ask.
type asking struct{ inspect.Info }

// breaking is the page that confirms Break.
type breaking struct {
	inspect.Info
	Token  int64
	Holder *inspect.Participant // with that token; nil: it no longer holds the name
}

// outcome is the result of an intervention.
type outcome struct {
	Name, Text string
	status     int
}

func loadAsk(ctx context.Context, q query) (any, error) {
	info, err := q.of.Lock(ctx, q.get("name"))
	return asking{info}, err
}

func loadBreak(ctx context.Context, q query) (any, error) {
	b := breaking{}
	var err error
	if b.Token, err = tokenOf(q); err != nil {
		return nil, err
	}
	if b.Info, err = q.of.Lock(ctx, q.get("name")); err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(b.Holders, func(p inspect.Participant) bool { return p.Token == b.Token }); i >= 0 {
		b.Holder = &b.Holders[i]
	}
	return b, nil
}

// tokenOf returns the token of the holder that the person has seen. Without a token Break would
// revoke the name from its present holder.
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
	// An intervention continues if its browser leaves.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), actTime)
	defer cancel()
	v := view{Page: "done", Now: time.Now(), Access: q.access}
	done, err := p.post(ctx, q)
	if err != nil {
		v.Problem = err.Error()
		done.Name, done.status = q.get("name"), status(err)
	}
	v.Data = done
	h.pages["done"].write(w, done.status, v)
}

// unconfirmed describes an unknown outcome: the error may stand for a commit whose answer was lost.
// "": nothing was done.
func unconfirmed(ctx context.Context, err error, what string) string {
	switch {
	case status(err) != http.StatusServiceUnavailable:
		return ""
	case ctx.Err() != nil:
		return fmt.Sprintf("Not confirmed within %v: %s, or not. Look at the lock.", actTime, what)
	}
	return fmt.Sprintf("Not confirmed: %s, or not. Look at the lock.", what)
}

// reason returns the person's name and text.
func reason(q query) (string, error) {
	text := strings.TrimSpace(q.get("reason"))
	switch {
	case text == "":
		return "", badRequest("There is no reason: it is written into the history, and sent to the holder. Nothing " +
			"was done.")
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
	switch {
	case errors.Is(err, dblock.ErrNotHeld):
		return outcome{q.get("name"), "This lock has no holder any more: there was none to ask.", http.StatusConflict},
			nil
	case err != nil:
		return outcome{Text: unconfirmed(ctx, err, "the holder may have been asked")}, err
	}
	return outcome{q.get("name"), "The holder was asked to release this lock.", http.StatusOK}, nil
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
	switch {
	case err != nil && holders > 0:
		return outcome{Text: fmt.Sprintf("The lock was revoked from the holder with token %d. The rest is not "+
			"confirmed: look at the lock.", token)}, err
	case err != nil:
		text := unconfirmed(ctx, err, "the lock may have been revoked")
		if ctx.Err() != nil {
			text += " A transaction that the holder guards can be the cause, or a slow database."
		}
		return outcome{Text: text}, err
	case holders == 0:
		return outcome{q.get("name"), fmt.Sprintf("The holder with token %d does not have this lock any more. "+
			"Nothing was revoked.", token), http.StatusConflict}, nil
	}
	return outcome{q.get("name"), fmt.Sprintf("The lock was revoked from the holder with token %d. It is notified, "+
		"and the next waiter has the lock.", token), http.StatusOK}, nil
}
