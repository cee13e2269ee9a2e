package main

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/http"
	"testing"

	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestOnlyALostDatabaseMakesAReplicaUnready(t *testing.T) {
	f := dblocktest.New[*sql.Tx](t)
	listener, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, f.Client, listener) }()
	status := func(probe string) int {
		answer, err := http.Get(fmt.Sprintf("http://%s%s", listener.Addr(), probe))
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode
	}
	for status("/leader") != http.StatusOK { // until it is elected
	}
	require.Equal(t, status("/ready"), http.StatusOK)
	f.Down()
	require.Equal(t, status("/ready"), http.StatusServiceUnavailable)
	require.Equal(t, status("/live"), http.StatusOK)
	f.Up()
	cancel()
	require.NoError(t, <-ended)
	next, err := f.Another(t).Client.TryLock(t.Context(), "indexer")
	require.NoError(t, err)
	require.NoError(t, next.Unlock(t.Context()))
}
