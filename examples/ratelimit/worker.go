package main

import (
	"context"
	"database/sql"
	"time"

	"github.com/dblock-go/dblock"
)

// limit is the number of calls that the API tolerates at once, from all processes together.
const limit = 3

// call makes one call that takes units permits. Permits of a process that dies are released with
// the end of its session.
func call(ctx context.Context, client *dblock.Client[*sql.Tx], remote *api, units int) error {
	permit, err := client.Lock(ctx, "api.example.com", dblock.Permits(units, limit))
	if err != nil {
		return err
	}
	remote.enter(units)
	select { // the call takes a while
	case <-time.After(5 * time.Millisecond):
	case <-permit.Context().Done(): // the permit was lost: stop
	}
	remote.leave(units)
	return permit.Unlock(ctx)
}
