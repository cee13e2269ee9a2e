package dblock

import (
	"context"
	"errors"

	"github.com/dblock-go/dblock/internal/contract"
)

// outcomes are the words for errors. Of those that an error matches, the first counts.
var outcomes = []struct {
	err  error
	word string
}{
	{ErrDeadlock, "deadlock"},
	{contract.ErrLeaseOver, "expired"},
	{ErrLost, "lost"},
	{ErrClosed, "closed"},
	{ErrCapacity, "capacity"},
	{ErrSchema, "schema"},
	{ErrReadOnly, "read_only"},
	{ErrConfig, "config"},
	{ErrUnsupported, "unsupported"},
	{ErrInvalidName, "invalid"},
	{ErrInvalidOption, "invalid"},
	{ErrTxDone, "tx_done"},
	{ErrUnavailable, "unavailable"},
	{context.DeadlineExceeded, "timeout"},
	{context.Canceled, "canceled"},
}

// Outcome is what an error of this package means, in one word, for the label of a metric: the Err
// of an AcquireResult or a HoldResult, or what Lock returned. There are 17 words:
//
//	ok           nil: acquired, or unlocked
//	refused      ErrNotAcquired: another holds the name or waits for it
//	timeout      the context's deadline passed, with or without a look at the holder
//	canceled     the context was canceled, likewise
//	expired      ErrLost because its Lease ran out, which may be as planned
//	deadlock, lost, closed, capacity, schema, read_only, config, unsupported, invalid, tx_done
//	unavailable  ErrUnavailable, also where the context ended meanwhile
//	failed       everything else
func Outcome(err error) string {
	if err == nil {
		return "ok"
	}
	refused := errors.Is(err, ErrNotAcquired)
	for _, o := range outcomes {
		if errors.Is(err, o.err) && !(refused && o.err == ErrUnavailable) { // a holder was seen: it was no outage
			return o.word
		}
	}
	if refused {
		return "refused"
	}
	return "failed"
}
