package dblock

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/dblock-go/dblock/internal/client"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/crash"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/observe"
	"github.com/dblock-go/dblock/reaper"
)

const (
	defaultTTL     = 15 * time.Second
	minTTL, maxTTL = time.Second, 24 * time.Hour
	maxMetadata    = 4096 // bytes, as JSON
)

// Option configures a client.
type Option struct{ setting }

type setting = inside.Inside[func(c *client.Config)]

func option(set func(c *client.Config)) Option { return *inside.Make[Option](set) }

// WithTTL sets how long the client's locks outlive its last heartbeat: 1 s to 24 h. A waiter takes
// over from a crashed holder within the TTL and one second, on the holder's host within a third of
// a second (WithHostFolder). A live client must reach the database once in a TTL. A heartbeat is
// sent every fifth of it, so that four may fail. Default: 15 s, which survives a failover of 10 s.
func WithTTL(ttl time.Duration) Option { return option(func(c *client.Config) { c.TTL = ttl }) }

// WithHost sets the host that the client's locks show. Default: os.Hostname.
func WithHost(host string) Option { return option(func(c *client.Config) { c.Host = host }) }

// WithApp sets the name of the application that the client's session shows. Default: the program's
// file name.
func WithApp(app string) Option { return option(func(c *client.Config) { c.App = app }) }

// WithLogger sets the logger for failures that the client survives: lost connections, failed
// heartbeats, takeovers. Other failures are returned as errors. In normal operation the client logs
// nothing at level INFO. Of an outage it logs the first failure of each kind of work, later ones at
// growing intervals, and the recovery with its duration. A Lock without a deadline that has waited
// for a TTL for a lock of this client is logged once at level INFO: it may wait for its own caller.
//
// Nothing waits for the logger. One goroutine of the client passes the entries on in their order,
// and asks whether their level is enabled. While a logger is slow or blocks, up to some thousand
// entries wait; of more, the next entry says how many were left out. Close waits one second for
// them, and a program that ends without Close may lose the last ones. Default: slog.Default.
func WithLogger(log *slog.Logger) Option { return option(func(c *client.Config) { c.Log = log }) }

// WithReaper configures the reaper that the client runs from its first lock on. Default: the
// defaults of package reaper.
func WithReaper(options ...reaper.Option) Option {
	return option(func(c *client.Config) { c.Reap, c.Reaper = true, options })
}

// WithoutReaper leaves expiring and purging to other clients, or to a separate reaper.Run. Waiters
// of this client still notice by themselves when a holder dies. Default: the client runs a reaper.
func WithoutReaper() Option { return option(func(c *client.Config) { c.Reap = false }) }

// WithDeadlockCheck sets how long a waiter waits before the client looks for a cycle of waiters: at
// least 10 ms, or 0 for never. It looks again after twice as long, and so on. One statement looks
// for all waiters of the client that are due. Default: 1 s.
func WithDeadlockCheck(after time.Duration) Option {
	return option(func(c *client.Config) { c.Deadlock = after })
}

// WithHostFolder sets the folder in which the processes of this host show each other that they
// live, so that the locks of a process that was killed move within a third of a second, and not
// after its TTL. Containers on one machine see each other if they share a folder: a volume in a
// file system of that machine, and one user. The path is absolute; a folder that is missing is
// made. Default: dblock-UID in the folder for temporary files (os.TempDir); on SQLite the folder
// DATABASE-dblock beside the database.
//
// The proof is a lock of the kernel (flock) on a file of the process, which ends with the process
// and not before. A process that is stopped or cut off keeps its locks for its TTL, and so does
// each one of which nothing is known: those on other hosts, of other users, or with a folder in a
// network file system. Linux, macOS and FreeBSD; elsewhere the TTL alone decides.
func WithHostFolder(path string) Option {
	return option(func(c *client.Config) { c.Crash = crash.Setting{Path: filepath.Clean(path)} })
}

// WithoutCrashDetection leaves it to the TTL alone when the locks of a process that was killed
// move, and makes no file on this host: for a process that closes descriptors which it did not
// open, such as a daemonizer. Default: see WithHostFolder.
func WithoutCrashDetection() Option { return option(func(c *client.Config) { c.Crash.Off = true }) }

// WithEvents records the events of the client's locks in the history: granted, released, lost, and
// expired if the client took a lock from a holder whose lease had expired, or whose process had
// ended. The lock of a job (package jobs) has an event for each run that has ended: ran, with the
// slot. Events are written in the background, in batches, within a second. A crash loses the events
// that were not yet written, and an outage of the database all but 10,000. The log reports such
// losses at the beginning of an outage, at growing intervals, and at its end. Ask, Break and Record
// are always recorded. Default: not.
func WithEvents() Option { return option(func(c *client.Config) { c.Events = true }) }

// WithObserver sets callbacks for the client's attempts, locks, jobs, heartbeats and listener.
// observe.All makes one Observer of several. Default: none, which costs nothing.
func WithObserver(o observe.Observer) Option {
	return option(func(c *client.Config) { c.Observer = &o })
}

func newConfig(options []Option) (client.Config, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	c := client.Config{
		TTL: defaultTTL, Host: host, App: filepath.Base(os.Args[0]), Log: slog.Default(), Reap: true,
		Clock: clock.Func(session.Boottime), Deadlock: time.Second, NotAcquired: notAcquired, Deadlocked: deadlocked,
	}
	for _, o := range options {
		set := inside.Of(o.setting)
		if set == nil {
			return c, fmt.Errorf("dblock: %w: a zero Option", ErrInvalidOption)
		}
		set(&c)
	}
	if c.TTL < minTTL || c.TTL > maxTTL {
		return c, fmt.Errorf("dblock: %w: TTL %v: want %v to %v", ErrInvalidOption, c.TTL, minTTL, maxTTL)
	}
	if c.Deadlock != 0 && c.Deadlock < 10*time.Millisecond {
		return c, fmt.Errorf("dblock: %w: WithDeadlockCheck(%v): want at least 10ms, or 0 for never",
			ErrInvalidOption, c.Deadlock)
	}
	if c.Crash.Path != "" && !filepath.IsAbs(c.Crash.Path) {
		return c, fmt.Errorf("dblock: %w: WithHostFolder(%q): want an absolute path", ErrInvalidOption, c.Crash.Path)
	}
	if c.Log == nil {
		return c, fmt.Errorf("dblock: %w: WithLogger(nil): want a logger, slog.DiscardHandler for silence",
			ErrInvalidOption)
	}
	for what, text := range map[string]string{"host": c.Host, "app": c.App} {
		if err := contract.CheckText(text); err != nil {
			return c, fmt.Errorf("dblock: %w: %s %w", ErrInvalidOption, what, err)
		}
	}
	return c, nil
}

// LockOption configures one lock.
type LockOption = contract.Option

// Owner gives the lock an owner that outlives the process. The same owner enters its own lock again
// at once, even from a new process while the lock of the old one is still held: with a new token,
// so that the old process is fenced, and notified as soon as possible. Two live clients with the
// same owner take the lock from each other: choose a pair that is unique and stays the same across
// a restart (a pod's stable name and a partition, say). Both parts: 1 to 255 bytes of UTF-8.
// Default: the client's host, and a new thread for each call that is not made under another lock's
// context.
func Owner(host, thread string) LockOption {
	return contract.Set(func(o *contract.Options) { o.Owner = &contract.Owner{Host: host, Thread: thread} })
}

// Lease ends the lock after d, counted from its grant, however alive the client is. Heartbeats do
// not prolong it, Lock.Extend does. The lock ends with the session if that ends first. When the
// lease expires the context ends with ErrLost, and others get the name. The log does not report it,
// since it may be planned: permits with a Lease that are never unlocked are a rate limit. At least
// 100 ms. Default: as long as the client lives.
func Lease(d time.Duration) LockOption {
	return contract.Set(func(o *contract.Options) { o.Lease, o.Leased = d, true })
}

// Metadata is stored with the lock and shown by package inspect. Valid UTF-8, at most 4096 bytes as
// JSON. Default: none.
func Metadata(kv map[string]string) LockOption {
	return contract.Set(func(o *contract.Options) { o.Metadata = kv })
}

// Progress takes the lock from a holder that does not call Lock.Progress at least every d. Without
// it, work that is stuck keeps the lock for ever, since heartbeats go on in the background. The
// context of the lock ends with cause ErrStalled, which is ErrLost too, and then the client
// releases the lock; a transaction that Guard guards ends before that. Progress is not watched
// after UnlockTx, until Guard has shown a rollback. At least 100 ms. Default: a lock is held for as
// long as its client lives.
func Progress(d time.Duration) LockOption {
	return contract.Set(func(o *contract.Options) { o.Progress, o.Watched = d, true })
}

// WaitAtMost bounds the wait for the lock, and not the work under it. After d, Lock, TryLock and Do
// return as when ctx ends, with an error that also matches context.DeadlineExceeded. It names the
// holder: once half of d has passed, the client reads the name, unless it has done so. The lock's
// Context and that of the function of Do go on. For LockAll it bounds the wait for all names
// together: give it for all, not in For. More than 0. Default: ctx alone bounds the wait.
func WaitAtMost(d time.Duration) LockOption {
	return contract.Set(func(o *contract.Options) { o.AtMost, o.Bounded = d, true })
}

// MinHold keeps all others from the name until d has passed since the grant, however early it is
// unlocked: for work that must not be repeated too early (ShedLock calls it lockAtLeastFor).
// Meanwhile the name is free, and TryLock returns ErrNotAcquired. Break ends it. Not with Shared
// and Permits. More than 0, at most 366 days. Default: none.
func MinHold(d time.Duration) LockOption {
	return contract.Set(func(o *contract.Options) { o.MinHold, o.Rests = d, true })
}

// Shared makes a reader of the caller: any number of readers hold the name at once, and no writer
// (without Shared) meanwhile. Readers and writers wait in one queue, first come first served: a
// waiting writer holds back the readers behind it, and neighbouring readers enter together. Every
// reader has a token of its own.
//
// An owner that holds the whole name may enter it shared. An owner that holds it shared cannot wait
// for the whole name, since it would wait for itself (ErrDeadlock, at once): see TryUpgrade. The
// share of an Owner is not entered again after a restart: it ends with the session. ErrUnsupported
// from mysql.Named. Default: exclusive.
func Shared() LockOption {
	return contract.Set(func(o *contract.Options) { o.Units, o.Of, o.Shares = 1, protocol.Readers, o.Shares+1 })
}

// Permits takes n of the name's units: a semaphore. It is first come first served, so that a large
// request at the head of the queue is not overtaken by small ones behind it. Units are released by
// Unlock, in any order, or when the holder's session ends. A permit is not entered again: under a
// permit's context Permits takes more units (ErrDeadlock, at once, if they can never fit beside the
// caller's own). Without Permits, Lock takes all units.
//
// n fits if inUse + n <= of, for the request's of and for that of every holder. So a semaphore
// changes its size while it is in use, as processes with the new of replace those with the old one:
// it shrinks with the first holder of a smaller of, and grows when the last such holder has left.
// ErrInvalidOption if the caller holds permits of another of. ErrCapacity, at once, if others read
// the name (Shared), or wait to. 1 <= n <= of < 2^31 - 1. In tables only.
func Permits(n, of int) LockOption {
	return contract.Set(func(o *contract.Options) { o.Units, o.Of, o.Permits, o.Shares = n, of, true, o.Shares+1 })
}

// LocksOption configures the locks of LockAll and TryLockAll. A LockOption is one, for all names.
type LocksOption = contract.LocksOption

// For gives one of the names of LockAll further options, which are applied after those for all
// names.
func For(name string, options ...LockOption) LocksOption {
	return contract.For{Name: name, Options: options}
}

// wantOf validates a name and the options of one lock.
func wantOf(name string, options []LockOption) (*client.Want, error) {
	o, err := contract.Of(name, options)
	if err != nil {
		return nil, err
	}
	return want(name, &o)
}

// want returns the request of the options to the client.
func want(name string, o *contract.Options) (*client.Want, error) {
	metadata, err := metadataJSON(o)
	w := &client.Want{Progress: o.Progress, AtMost: o.AtMost, Request: protocol.Request{
		Name: name, Lease: o.Lease, Metadata: metadata, MinHold: o.MinHold, Units: o.Units, Of: o.Of,
		Candidate: o.Candidate,
	}}
	if o.Owner != nil {
		w.Owner = &client.Owner{Host: o.Owner.Host, Thread: o.Owner.Thread, Explicit: true}
	}
	return w, err
}

// metadataJSON returns the metadata as it is stored; "" for none.
func metadataJSON(o *contract.Options) (string, error) {
	if len(o.Metadata) == 0 {
		return "", nil
	}
	b, err := json.Marshal(o.Metadata)
	if err != nil {
		return "", fmt.Errorf("%w: Metadata: %w", ErrInvalidOption, err)
	}
	if len(b) > maxMetadata {
		return "", fmt.Errorf("%w: Metadata is %d bytes as JSON: want at most %d",
			ErrInvalidOption, len(b), maxMetadata)
	}
	return string(b), nil
}
