package tfstate_test

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

	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock"
	tfstate "github.com/dblock-go/dblock/contrib/terraform"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/sqlite"
)

func Example() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "tfstate")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(folder, "app.db")+
		"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := migrate.Up(ctx, db, migrate.SQLite); err != nil {
		log.Fatal(err)
	}
	schema, err := tfstate.Schema("sqlite")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, schema); err != nil {
		log.Fatal(err)
	}
	client, err := dblock.New(sqlite.New(db))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	handler, err := tfstate.New(client, db, "sqlite")
	if err != nil {
		log.Fatal(err)
	}
	server := httptest.NewServer(http.StripPrefix("/states/", handler)) // and authentication around it
	defer server.Close()

	// The requests are those of terraform.
	for _, send := range []struct{ method, query, body string }{
		{"LOCK", "", `{"ID":"7c29","Operation":"OperationTypeApply","Who":"ada@laptop"}`},
		{"LOCK", "", `{"ID":"b1d0","Operation":"OperationTypePlan","Who":"bob@desktop"}`},
		{"POST", "?ID=7c29", `{"version":4,"serial":1}`},
		{"UNLOCK", "", `{"ID":"7c29"}`},
		{"POST", "?ID=7c29", `{"version":4,"serial":2}`},
		{"GET", "", ""},
	} {
		request, err := http.NewRequest(send.method, server.URL+"/states/prod/network"+send.query,
			strings.NewReader(send.body))
		if err != nil {
			log.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			log.Fatal(err)
		}
		answer, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(strings.TrimSpace(fmt.Sprintln(send.method, response.StatusCode, string(answer))))
	}
	// Output:
	// LOCK 200
	// LOCK 423 {"ID":"7c29","Operation":"OperationTypeApply","Who":"ada@laptop"}
	// POST 200
	// UNLOCK 200
	// POST 409 the lock with this ID was released, broken, or has expired
	// GET 200 {"version":4,"serial":1}
}
