package dblockweb_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/dblockweb"
	"github.com/dblock-go/dblock/internal/testing/example"
)

// openClient makes a client on tables in memory; an application has a database.
func openClient(options ...dblock.Option) (client *dblock.Client[*sql.Tx], done func()) {
	t := &example.T{}
	return dblocktest.New[*sql.Tx](t, options...).Client, t.End
}

func Example() {
	client, done := openClient()
	defer done()
	ctx := context.Background()

	mux := http.NewServeMux()
	mux.Handle("/admin/locks/", dblockweb.Handler(client, dblockweb.Authorize(func(r *http.Request) dblockweb.Access {
		user, password, _ := r.BasicAuth() // or what the application has
		return dblockweb.Access{Look: user == "alice" && password == "secret", Act: false, By: user}
	})))
	server := httptest.NewServer(mux)
	defer server.Close()

	if _, err := client.Lock(ctx, "invoice/42"); err != nil {
		log.Fatal(err)
	}
	for _, user := range []string{"alice", "eve"} {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/admin/locks/", nil)
		if err != nil {
			log.Fatal(err)
		}
		r.SetBasicAuth(user, "secret")
		response, err := server.Client().Do(r)
		if err != nil {
			log.Fatal(err)
		}
		page, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(user, response.StatusCode, strings.Contains(string(page), "invoice/42"))
	}
	// Output:
	// alice 200 true
	// eve 403 false
}
