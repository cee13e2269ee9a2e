package tfstate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/dblock-go/dblock"
)

// refusal is an answer that is no success.
type refusal struct {
	status int
	text   string
}

func (r refusal) Error() string { return r.text }

// bad is the refusal of a request that has to be another one.
func bad(format string, args ...any) error {
	return refusal{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

var (
	// errGone: no later write of the lock's run may pass.
	errGone = refusal{http.StatusConflict, "the lock with this ID was released, broken, or has expired"}
	// errBusy: another request is in the middle of its work. Terraform sends this one again.
	errBusy = refusal{http.StatusServiceUnavailable, "another request is locking or unlocking this state"}
)

// holder is the holder of a state's lock.
type holder struct {
	token int64
	id    string            // of the run; "": it is no run of Terraform
	info  map[string]string // a LockInfo; nil: the lock is free
}

// locked is the refusal that names the holder.
func (h holder) locked() error {
	if h.info == nil {
		return errBusy // it was released meanwhile, or is waited for
	}
	text, err := json.Marshal(h.info)
	if err != nil {
		return err
	}
	return refusal{http.StatusLocked, string(text)}
}

// held returns the token of a run's lock. id "": of any run's. It returns errGone if the lock is
// free, and refuses another holder.
func (h *Handler) held(ctx context.Context, name, id string) (token int64, err error) {
	holder, err := h.holder(ctx, name)
	switch {
	case err != nil:
		return 0, err
	case holder.info == nil:
		return 0, errGone
	case holder.id == "" || id != "" && holder.id != id:
		return 0, holder.locked()
	}
	return holder.token, nil
}

// holder returns the living holder of a name. A holder of an application gets the fields that
// Terraform prints, and an ID, without which Terraform does not wait for it.
func (h *Handler) holder(ctx context.Context, name string) (holder, error) {
	lock, err := h.inspector.Lock(ctx, name)
	if err != nil {
		return holder{}, err
	}
	for _, p := range lock.Holders {
		switch id := p.Metadata["ID"]; {
		case !p.Alive:
		case id != "":
			return holder{p.Token, id, p.Metadata}, nil
		default:
			return holder{token: p.Token, info: map[string]string{
				"ID": fmt.Sprint("dblock/", p.Token), "Operation": "Lock", "Info": "held by an application",
				"Who": p.App + "@" + p.Host, "Created": p.Since.UTC().Format(time.RFC3339Nano), "Path": name,
			}}, nil
		}
	}
	return holder{}, nil
}

// refuse answers with the status and the text of an error.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	var known refusal
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &known):
	case errors.As(err, &tooLarge):
		known = refusal{http.StatusRequestEntityTooLarge, err.Error()}
	case errors.Is(err, dblock.ErrInvalidName), errors.Is(err, dblock.ErrInvalidOption):
		known = refusal{http.StatusBadRequest, err.Error()}
	case errors.Is(err, dblock.ErrUnavailable), errors.Is(err, dblock.ErrReadOnly):
		known = refusal{http.StatusServiceUnavailable, err.Error()}
	default:
		known = refusal{http.StatusInternalServerError, err.Error()}
	}
	if known.status >= http.StatusInternalServerError {
		h.log.ErrorContext(r.Context(), "dblock: tfstate", "method", r.Method, "path", r.URL.Path, "err", err)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8") // never HTML: it may contain what the caller sent
	if known.status == http.StatusLocked {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(known.status)
	_, _ = w.Write([]byte(known.text))
}
