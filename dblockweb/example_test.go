package dblockweb_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblockweb"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/sqlite"
)

func Example() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "dblock")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(folder, "locks.db")+"?_pragma=journal_mode(WAL)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := migrate.Up(ctx, db, migrate.SQLite); err != nil {
		log.Fatal(err)
	}
	client, err := dblock.New(sqlite.New(db))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)

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
