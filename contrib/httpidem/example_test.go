package httpidem_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/contrib/httpidem"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/sqlite"
)

// pay writes a payment in the transaction of the request.
func pay(w http.ResponseWriter, r *http.Request) {
	tx := httpidem.Tx[*sql.Tx](r.Context())
	done, err := tx.ExecContext(r.Context(), "INSERT INTO payments (amount) VALUES (?)", r.FormValue("amount"))
	if err != nil {
		http.Error(w, "try again", http.StatusInternalServerError) // rolls back
		return
	}
	id, err := done.LastInsertId()
	if err != nil {
		http.Error(w, "try again", http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "payment %d", id)
}

func Example() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "httpidem")
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
	schema, err := httpidem.Schema(migrate.SQLite)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, schema+"CREATE TABLE payments (id integer PRIMARY KEY, amount int)"); err != nil {
		log.Fatal(err)
	}
	client, err := dblock.New(sqlite.New(db))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	m, err := httpidem.New(client, httpidem.SQL(db, migrate.SQLite), httpidem.Required())
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /payments", m.Handler(http.HandlerFunc(pay)))

	send := func(key, amount string) {
		r := httptest.NewRequest("POST", "/payments", strings.NewReader("amount="+amount))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Idempotency-Key", key)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		answer, _, _ := strings.Cut(w.Body.String(), ",")
		fmt.Println(w.Code, answer)
	}
	send(`"8e03978e"`, "10")
	send(`"8e03978e"`, "10") // the first answer was lost
	send(`"8e03978e"`, "99")
	send(`"clkyoesm"`, "10")
	// Output:
	// 201 payment 1
	// 201 payment 1
	// 422 {"title":"Idempotency-Key is already used"
	// 201 payment 2
}
