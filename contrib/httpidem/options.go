package httpidem

import (
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/migrations"
)

type config struct {
	required          bool
	scope             func(*http.Request) string
	wait, keep        time.Duration
	maxBody, maxReply int
	page              string
	log               *slog.Logger
}

// Option is an option of New.
type Option func(*config)

// Required refuses a request without a key with 400. Default: it runs each time, in a transaction.
func Required() Option { return func(c *config) { c.required = true } }

// Scope gives each scope keys of its own, so that no caller meets the answers to another: the
// user's id, say. The text must be UTF-8 without NUL. Default: all requests share one scope.
func Scope(of func(*http.Request) string) Option { return func(c *config) { c.scope = of } }

// Wait lets a request wait for another one with the same key, for up to d, and then replays its
// answer. With 0 it is refused with 409 at once. Default: 0; on SQLite 5 s, since a handler there
// keeps requests with other keys out as well.
func Wait(d time.Duration) Option { return func(c *config) { c.wait = d } }

// Keep sets the time after which an answer expires, by the database's clock. A later request with
// the same key runs again. At least a second. Default: 24 hours.
func Keep(d time.Duration) Option { return func(c *config) { c.keep = d } }

// MaxBody limits the bytes of a request's body, which is kept in memory. Default: 1 MiB.
func MaxBody(bytes int) Option { return func(c *config) { c.maxBody = bytes } }

// MaxAnswer limits the bytes of an answer's body. A larger one is rolled back and answered with
// 500. Default: 1 MiB.
func MaxAnswer(bytes int) Option { return func(c *config) { c.maxReply = bytes } }

// Page is the address of the documentation of the API's keys, which refusals link to. Default:
// none.
func Page(url string) Option { return func(c *config) { c.page = url } }

// Logger logs the errors of the database that are answered with 503. Default: slog.Default.
func Logger(log *slog.Logger) Option { return func(c *config) { c.log = log } }

// sqliteWait is the default of Wait on SQLite.
const sqliteWait = 5 * time.Second

func configOf(engine migrations.Engine, options []Option) (config, error) {
	c := config{
		scope: func(*http.Request) string { return "" }, keep: 24 * time.Hour, maxBody: 1 << 20, maxReply: 1 << 20,
		log: slog.Default(),
	}
	if engine == migrations.SQLite {
		c.wait = sqliteWait
	}
	for _, option := range options {
		option(&c)
	}
	switch {
	case c.scope == nil || c.log == nil:
		return c, invalid("the scope or the logger is nil")
	case c.wait < 0 || c.keep < time.Second:
		return c, invalid("Wait %v, Keep %v: want 0 or more, and at least a second", c.wait, c.keep)
	case c.maxBody < 0 || c.maxReply < 0:
		return c, invalid("MaxBody %d, MaxAnswer %d: want 0 or more", c.maxBody, c.maxReply)
	}
	return c, nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("dblock: httpidem: %w: %s", dblock.ErrInvalidOption, fmt.Sprintf(format, args...))
}
