package driver

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/internal/protocol"
)

// Sessions keeps the sessions of clients, and the engine's connections for them.
type Sessions interface {
	// OpenSession writes the rows of a new session. Its lease ends TTL after the statement ran. The
	// engine first examines the server and the application's pool. A detached session does not need
	// that. ErrBusy where an application's transaction has locked the database.
	OpenSession(ctx context.Context, s Session) error

	// EndSession ends a session after its locks were released. After that nothing can be granted to
	// the session. If empty is true, the client knows that the session has no locks and no places
	// in queues, and its rows are deleted. A missing session is no error.
	EndSession(ctx context.Context, session string, empty bool) error

	// Bury ends a session before its lease, for a caller that has proof that the session's process
	// has ended. The row of the session says who buried it, and why. ErrBusy where another call is
	// ending the session. Guarded transactions are no obstacle. Bury is safe to repeat.
	Bury(ctx context.Context, session, by, because string) (Burial, error)

	// Upkeep reserves the connection for a session's heartbeats, apart from the work of the
	// application. No statement that can wait for a row runs on it, except the heartbeat, for its
	// own row.
	Upkeep(ctx context.Context, session string) (Upkeep, error)

	// Beat is Upkeep.Heartbeat over the application's pool, for the time without a reserved
	// connection.
	Beat(ctx context.Context, session string, ttl time.Duration) (alive bool, err error)

	// Attend tells the engine that a client of an application, with this TTL, uses it until leave
	// is called; "" and 0: a user without a session, such as a reaper. It does no I/O. While a
	// client attends, the engine may keep connections of its own open between two uses. The last
	// leave closes them, within about a second. Without Attend everything works, on a new
	// connection for each use. Connections that the engine opens bear the name of the application
	// that attended last, where the server shows such a name.
	Attend(app string, ttl time.Duration) (leave func())

	// Lending returns a context that is cancelled when the application closes the pool while the
	// engine holds connections of it (pgxpool's Close blocks until they return). Every statement on
	// them then fails with ErrConfig. An engine that cannot see that returns a context that never
	// ends.
	Lending() context.Context

	// OnSideConn runs do on a connection of the engine's own, which is not an Upkeep's, and which
	// the application's transactions cannot keep busy. If the connection turns out to be broken, do
	// runs once more on a new one. do must not call Close. ErrUnavailable where the application's
	// pool gives no connection before ctx ends.
	OnSideConn(ctx context.Context, do func(ctx context.Context, up Upkeep) error) error
}

// Upkeep is a reserved connection. One goroutine at a time uses it, and beside that one another
// goroutine may listen.
type Upkeep interface {
	// Heartbeat moves the end of the session's lease to TTL from now, but never back: of two
	// heartbeats the later may be the first to run. It returns false if the session is dead. A
	// *SchemaError where this build can no longer work with the tables, ErrReplaced where the
	// database is another: the lease was not moved, and the session has ended.
	Heartbeat(ctx context.Context, session string, ttl time.Duration) (alive bool, err error)

	// Claims lists claims of a session: all of them if known is nil, else at least those of known,
	// found by name, attempt and token, that the session still has. An engine without an index from
	// a session to its locks looks up the names of known, and finds other claims later, in a walk
	// over all names of which each call makes a step.
	Claims(ctx context.Context, session string, known []Claim) ([]Claim, error)

	// Listen listens for grants to the session, on this connection or on another one beside it,
	// until ctx ends or one of the two connections fails. It delays no statement of Heartbeat or
	// Claims. It calls ready once, as soon as no later grant can be missed. It calls wake for each
	// hint that a lock was granted or taken away. ErrUnsupported where the engine can only be
	// polled; ErrCannotListen, which is ErrUnsupported too, where the driver is the reason.
	Listen(ctx context.Context, session string, ready func(), wake func(protocol.Hint)) error

	// Close releases the connection, and ends Listen. It waits for the network for at most one
	// second.
	Close() error
}

// Burial is the outcome of Bury.
type Burial int

const (
	Missing     Burial = iota // the session has no row: it may be another database's
	Buried                    // by this call
	DeadAlready               // it had ended before
)
