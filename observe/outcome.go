package observe

import (
	"context"
	"errors"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
)

// outcomes are the words for errors. The first match of an error counts.
var outcomes = []struct {
	err  error
	word string
}{
	{contract.ErrDeadlock, "deadlock"},
	{contract.ErrLeaseOver, "expired"},
	{contract.ErrLost, "lost"},
	{contract.ErrClosed, "closed"},
	{driver.ErrCapacity, "capacity"},
	{driver.ErrSchema, "schema"},
	{driver.ErrReadOnly, "read_only"},
	{driver.ErrConfig, "config"},
	{driver.ErrUnsupported, "unsupported"},
	{contract.ErrInvalidName, "invalid"},
	{contract.ErrInvalidOption, "invalid"},
	{driver.ErrTxDone, "tx_done"},
	{driver.ErrUnavailable, "unavailable"},
	{context.DeadlineExceeded, "timeout"},
	{context.Canceled, "canceled"},
	{driver.ErrRetry, "retry"},
}

// Outcome returns one word for an error, for the label of a metric: for the Err of an AcquireResult
// or a HoldResult, or an error of package dblock. There are 18 words:
//
//	ok           nil: acquired, or unlocked
//	refused      ErrNotAcquired: another holds the name or waits for it
//	timeout      the context's deadline passed, whether a holder was seen or not
//	canceled     the context was canceled, whether a holder was seen or not
//	expired      ErrLost because the Lease expired, which may be as planned
//	deadlock, lost, closed, capacity, schema, read_only, config, unsupported, invalid, tx_done
//	unavailable  ErrUnavailable, also where the context ended meanwhile
//	retry        ErrRetry: the transaction of LockTx has to be run again
//	failed       everything else
func Outcome(err error) string {
	if err == nil {
		return "ok"
	}
	refused := errors.Is(err, contract.ErrNotAcquired)
	for _, o := range outcomes {
		// A refusal has seen a holder: an outage or a lost race beside it is not the outcome.
		if errors.Is(err, o.err) && !(refused && (o.err == driver.ErrUnavailable || o.err == driver.ErrRetry)) {
			return o.word
		}
	}
	if refused {
		return "refused"
	}
	return "failed"
}
