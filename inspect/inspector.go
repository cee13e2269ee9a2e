package inspect

import (
	"context"
	"encoding/json"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/client"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
)

// Inspector shows the locks of one database. It is safe for concurrent use.
type Inspector struct{ client *client.Client }

// New makes an Inspector of a client. It does no I/O. The Inspector uses the client's pool, and
// returns ErrClosed once the client is closed. Watch alone needs the client's session. With a nil
// client the methods return dblock.ErrInvalidOption.
func New[TX any](c *dblock.Client[TX]) *Inspector {
	if c == nil {
		c = new(dblock.Client[TX])
	}
	return &Inspector{inside.Of(c)}
}

// read runs a statement that no lock depends on, and retries it after a lost race.
func (i *Inspector) read(
	ctx context.Context, op, name string, f func(ctx context.Context, engine driver.Backend) error,
) error {
	if err := i.client.Inquire(ctx, f); err != nil {
		return &dblock.LockError{Op: op, Name: name, Err: err}
	}
	return nil
}

// metadataOf parses the text that dblock.Metadata wrote. Other programs write these tables too: any
// other text has no metadata.
func metadataOf(text string) (kv map[string]string) {
	if text != "" && json.Unmarshal([]byte(text), &kv) != nil {
		return nil
	}
	return kv
}
