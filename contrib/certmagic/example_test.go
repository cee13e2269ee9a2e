package certmagiclock_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/caddyserver/certmagic"
	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock"
	certmagiclock "github.com/dblock-go/dblock/contrib/certmagic"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/sqlite"
)

func ExampleWithLocks() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "certmagic")
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
	client, err := dblock.New(sqlite.New(db))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	files := &certmagic.FileStorage{Path: filepath.Join(folder, "certificates")} // or any other storage
	storage, err := certmagiclock.WithLocks(files, client.Locker(), "certmagic")
	if err != nil {
		log.Fatal(err)
	}
	certmagic.Default.Storage = storage // before anything else is done with CertMagic

	// What CertMagic does while it obtains a certificate:
	if err := storage.Lock(ctx, "issue_cert_example.com"); err != nil {
		log.Fatal(err)
	}
	free, err := storage.TryLock(ctx, "issue_cert_example.com")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("free for another instance:", free)
	if err := storage.Unlock(ctx, "issue_cert_example.com"); err != nil {
		log.Fatal(err)
	}
	// Output: free for another instance: false
}
