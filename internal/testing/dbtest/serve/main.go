// Command serve finds servers for the kinds named, as package dbtest does, so that all packages of
// a test run share them. An argument is a kind, and the settings of a server that serve starts:
// serve sqlite "postgres -c fsync=on". It prints one shell assignment for each, then an empty line,
// and stops what it started when its standard input ends or a signal comes. It fails where a kind
// is missing. With DBLOCK_TEST_TIMES it leaves in that folder what each server has spent (command
// times, in internal/testing/system).
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
)

func main() { os.Exit(serve(os.Args[1:])) }

func serve(kinds []string) int {
	end := make(chan os.Signal, 1)
	signal.Notify(end, os.Interrupt, syscall.SIGTERM)
	defer dbtest.StopAll()
	for _, kind := range kinds {
		settings := strings.Fields(kind)
		server, err := dbtest.Find(settings[0], settings[1:]...)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		dsn := strings.ReplaceAll(server.DSN, "'", `'\''`)
		fmt.Printf("export DBLOCK_TEST_%s_DSN='%s'\n", strings.ToUpper(server.Kind), dsn)
		fmt.Fprintf(os.Stderr, "%-9s %s\n", server.Kind, server.From)
	}
	fmt.Println()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		end <- os.Interrupt
	}()
	<-end
	if folder := os.Getenv("DBLOCK_TEST_TIMES"); folder != "" {
		for _, kind := range kinds {
			leave(folder, strings.Fields(kind)[0])
		}
	}
	return 0
}

// leave writes what a server has spent.
func leave(folder, kind string) {
	server, err := dbtest.Find(kind)
	if err != nil {
		return
	}
	if user, kernel, ok := server.Spent(); ok {
		text, _ := json.Marshal(map[string]any{"Package": kind, "User": user, "Kernel": kernel})
		if err := os.WriteFile(filepath.Join(folder, "server_"+kind+".json"), text, 0o600); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}
