package dblock

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/reaper"
)

const (
	defaultTTL     = 15 * time.Second
	minTTL, maxTTL = time.Second, 24 * time.Hour
	minLease       = 100 * time.Millisecond
	maxName        = 255  // bytes, of a lock's name, a host, a thread
	maxMetadata    = 4096 // bytes, as JSON
)

// Option configures a client.
type Option func(*config)

type config struct {
	ttl       time.Duration
	host, app string
	log       *slog.Logger
	reap      bool
	reaper    []reaper.Option
	clock     session.Clock
}

// WithTTL sets how long the client's locks outlive its last sign of life: 1 s to 24 h. A crashed holder is succeeded
// within this time and one second; a live one must reach the database once in it. A heartbeat is sent every fifth of
// it, so that four may fail. Default: 15 s, which survives a failover of 10 s.
func WithTTL(ttl time.Duration) Option { return func(c *config) { c.ttl = ttl } }

// WithHost sets the host that the client's locks show. Default: os.Hostname.
func WithHost(host string) Option { return func(c *config) { c.host = host } }

// WithApp sets the name of the application that the client's session shows. Default: the program's file name.
func WithApp(app string) Option { return func(c *config) { c.app = app } }

// WithLogger sets where the client tells of what it survives: lost connections, failed heartbeats, takeovers. What it
// does not survive it returns as errors. Default: slog.Default.
func WithLogger(log *slog.Logger) Option { return func(c *config) { c.log = log } }

// WithReaper configures the reaper that the client runs from its first lock on. Default: the defaults of package
// reaper.
func WithReaper(options ...reaper.Option) Option {
	return func(c *config) { c.reap, c.reaper = true, options }
}

// WithoutReaper leaves expiring and purging to other clients, or to a reaper.Run of its own. Waiters of this client
// still notice by themselves when a holder dies. Default: the client runs a reaper.
func WithoutReaper() Option { return func(c *config) { c.reap = false } }

func newConfig(options []Option) (config, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	c := config{ttl: defaultTTL, host: host, app: filepath.Base(os.Args[0]), log: slog.Default(), reap: true, clock: session.Boottime}
	for _, o := range options {
		if o == nil {
			return c, fmt.Errorf("dblock: %w: a nil Option", ErrInvalidOption)
		}
		o(&c)
	}
	if c.ttl < minTTL || c.ttl > maxTTL {
		return c, fmt.Errorf("dblock: %w: TTL %v: want %v to %v", ErrInvalidOption, c.ttl, minTTL, maxTTL)
	}
	if c.log == nil {
		return c, fmt.Errorf("dblock: %w: WithLogger(nil): want a logger, slog.DiscardHandler for silence", ErrInvalidOption)
	}
	for what, text := range map[string]string{"host": c.host, "app": c.app} {
		if err := checkText(text); err != nil {
			return c, fmt.Errorf("dblock: %w: %s %w", ErrInvalidOption, what, err)
		}
	}
	return c, nil
}

// LockOption configures one lock.
type LockOption func(*lockConfig)

type lockConfig struct {
	owner    *owner // nil: from the context, or a new one
	lease    time.Duration
	leased   bool
	metadata map[string]string
	shared   bool
	also     []string // LockTx
}

// Owner gives the lock an owner that outlives the process. The same owner enters its own lock again at once, even
// from a new process while the old one's lock still stands: with a new token, so that the old incarnation is fenced,
// and told as soon as it can be. Two live clients with the same owner take the lock from each other: choose the
// pair so that it is unique, and stays the same across a restart (a pod's stable name and a partition, say).
// Both parts: 1 to 255 bytes of UTF-8. Default: the client's host, and a thread of its own for each call that is not
// made under another lock's context.
func Owner(host, thread string) LockOption {
	return func(c *lockConfig) { c.owner = &owner{host: host, thread: thread, explicit: true} }
}

// Lease ends the lock after d, counted from its grant, however alive the client is; heartbeats do not prolong it. It
// still ends with the session if that ends first. At least 100 ms. Default: as long as the client lives.
func Lease(d time.Duration) LockOption {
	return func(c *lockConfig) { c.lease, c.leased = d, true }
}

// Metadata is kept with the lock while it is held, for people and programs that look at who holds it: at most 4096
// bytes as JSON. Default: none.
func Metadata(kv map[string]string) LockOption {
	return func(c *lockConfig) { c.metadata = kv }
}

// Shared lets any number of holders have the name at once, and nobody hold it alone meanwhile. ErrUnsupported except with
// postgres.Advisory. Default: exclusive.
func Shared() LockOption {
	return func(c *lockConfig) { c.shared = true }
}

// Also names more locks to take in the same call of LockTx or TryLockTx. They are locked in the order of their bytes,
// whatever the order given, so that two transactions that want the same ones cannot wait for each other. Default: none.
func Also(names ...string) LockOption {
	return func(c *lockConfig) { c.also = append(c.also, names...) }
}

// lockConfigOf validates a name and the options of one lock. It returns the metadata as JSON.
func lockConfigOf(name string, options []LockOption) (c lockConfig, metadata string, err error) {
	if err := checkText(name); err != nil {
		return c, "", fmt.Errorf("%w: %w", ErrInvalidName, err)
	}
	for _, o := range options {
		if o == nil {
			return c, "", fmt.Errorf("%w: a nil LockOption", ErrInvalidOption)
		}
		o(&c)
	}
	if c.leased && c.lease < minLease {
		return c, "", fmt.Errorf("%w: Lease %v: want at least %v", ErrInvalidOption, c.lease, minLease)
	}
	if c.owner != nil {
		for what, text := range map[string]string{"host": c.owner.host, "thread": c.owner.thread} {
			if err := checkText(text); err != nil {
				return c, "", fmt.Errorf("%w: Owner's %s %w", ErrInvalidOption, what, err)
			}
		}
	}
	if len(c.metadata) > 0 {
		b, err := json.Marshal(c.metadata)
		if err != nil {
			return c, "", fmt.Errorf("%w: Metadata: %w", ErrInvalidOption, err)
		}
		if len(b) > maxMetadata {
			return c, "", fmt.Errorf("%w: Metadata is %d bytes as JSON: want at most %d", ErrInvalidOption, len(b), maxMetadata)
		}
		metadata = string(b)
	}
	return c, metadata, nil
}

// checkText refuses what not every engine keeps byte for byte.
func checkText(s string) error {
	switch {
	case s == "":
		return fmt.Errorf("is empty: want 1 to %d bytes", maxName)
	case len(s) > maxName:
		return fmt.Errorf("has %d bytes: want 1 to %d", len(s), maxName)
	case !utf8.ValidString(s):
		return fmt.Errorf("%q is not valid UTF-8", s)
	case strings.ContainsRune(s, 0):
		return fmt.Errorf("%q contains NUL", s)
	}
	return nil
}
