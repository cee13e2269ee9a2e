package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// cache tells whether the connections of a pool share one cache. With a shared cache, PRAGMA
// synchronous of one connection applies to the commits of all.
type cache int32

const (
	cacheUnknown cache = iota
	cacheOwn
	cacheShared
)

// ownCaches reports whether each connection of the pool is known to have its own cache. The first
// check takes two connections if the pool has them free, and waits for none.
func (d *database) ownCaches(ctx context.Context) bool {
	if s := d.db.Stats(); d.cache.Load() == int32(cacheUnknown) && (s.MaxOpenConnections == 0 ||
		s.InUse+2 <= s.MaxOpenConnections) {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		if shared, err := d.sharesCache(ctx); err == nil && shared {
			d.cache.Store(int32(cacheShared))
		} else if err == nil {
			d.cache.Store(int32(cacheOwn))
		}
	}
	return d.cache.Load() == int32(cacheOwn)
}

// sharesCache changes the cache size in one connection for a moment and reads it in another. No
// statement shows directly whether a cache is shared.
func (d *database) sharesCache(ctx context.Context) (shared bool, err error) {
	one, err := d.conn(ctx)
	if err != nil {
		return false, err
	}
	defer one.Close()
	other, err := d.conn(ctx)
	if err != nil {
		return false, err
	}
	defer other.Close()
	ctx = context.WithoutCancel(ctx)
	size := func(conn *sql.Conn) (n int64, err error) {
		err = conn.QueryRowContext(ctx, "PRAGMA main.cache_size").Scan(&n)
		return n, err
	}
	set := func(n int64) error {
		_, err := other.ExecContext(ctx, fmt.Sprintf("PRAGMA main.cache_size = %d", n))
		return err
	}
	mine, err := size(one)
	if err != nil {
		return false, err
	}
	theirs, err := size(other)
	if err != nil {
		return false, err
	}
	defer func() {
		if set(theirs) != nil {
			discard(other)
		}
	}()
	probe := mine + 1
	if probe == 0 {
		probe++
	}
	if err := set(probe); err != nil {
		return false, err
	}
	now, err := size(one)
	return now == probe, err
}
