package main

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/dblock-go/dblock"
)

// errApart is the error of a LockAll of names that belong to different databases.
var errApart = errors.New("the names belong to different databases")

// shards is one client for each of several databases, which every process opens in the same order.
// A name belongs to one of them, so that all processes meet there.
//
// The processes MUST agree on the number of databases. While some of them have another number, two
// processes may look for a name in two databases, and both get it.
type shards []*dblock.Client[*sql.Tx]

// of returns the client of the database that a name belongs to.
func (s shards) of(name string) *dblock.Client[*sql.Tx] { return s[s.number(name)] }

// number returns the number of the database of a name: the one with the highest score for the
// group of the name (rendezvous hashing). One more database takes names from all others, and
// between those no name moves.
func (s shards) number(name string) (best int) {
	for i := range s {
		if score(group(name), i) > score(group(name), best) {
			best = i
		}
	}
	return best
}

// group is the part of a name before the first "/". The names of one group belong to one database,
// so that LockAll can take them together.
func group(name string) string {
	before, _, _ := strings.Cut(name, "/")
	return before
}

// score is the same number in every process and on every machine.
func score(group string, shard int) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d/%s", shard, group))
	return binary.BigEndian.Uint64(sum[:])
}

// lockAll takes several names of one database. Names of different databases are refused: no
// database sees a cycle of waiters over two of them.
func (s shards) lockAll(ctx context.Context, names ...string) (*dblock.Locks, error) {
	for _, name := range names[1:] {
		if s.number(name) != s.number(names[0]) {
			return nil, fmt.Errorf("%w: %q and %q", errApart, names[0], name)
		}
	}
	return s.of(names[0]).LockAll(ctx, names)
}
