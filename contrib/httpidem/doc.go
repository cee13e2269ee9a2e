// Package httpidem runs an HTTP request once for each Idempotency-Key, in the transaction of its
// handler. A client that got no answer sends the request again, with the same key, and nothing
// happens twice.
//
//	database := httpidem.SQL(db, migrate.MySQL)
//	m, err := httpidem.New(client, database, httpidem.Required(), httpidem.Scope(userOf))
//	…
//	mux.Handle("POST /payments", m.Handler(http.HandlerFunc(pay)))
//
//	func pay(w http.ResponseWriter, r *http.Request) {
//		tx := httpidem.Tx[*sql.Tx](r.Context())
//		_, err := tx.ExecContext(r.Context(), "INSERT INTO payments …") // and the answer to w
//	}
//
// For pgx: httpidem.New(client, httpidempgx.Pool(pool)), and httpidem.Tx[pgx.Tx].
//
// # Flow
//
// The middleware begins a transaction, locks the key in it (dblock.Client.LockTx), runs the
// handler, stores its answer in the same transaction, and commits. Then it sends the answer. So
// either the handler's writes and its answer are both there, or neither is. Whenever the client got
// no answer, or 503, it sends the same request again. A commit without an answer is an unknown
// outcome, which the next request with the key resolves. A request whose client hangs up stops
// waiting for a connection or for the key. Once its handler runs, it is finished.
//
// # Semantics
//
// They are those of draft-ietf-httpapi-idempotency-key-header. Numbers in brackets are its
// sections.
//
//	400   the key is missing (option Required), or not valid (2.1, 2.7)
//	409   another request with the key is being processed (2.6); option Wait waits for its answer
//	422   the key was used for a request with another method, path, query or body (2.4, 2.7)
//
// An answer is replayed with its status, body and header, but Set-Cookie, and with
// "Idempotent-Replayed: true". It expires after the time of option Keep (2.3). Refusals are of the
// type application/problem+json. A key may be without quotes. Keys belong to a scope (option
// Scope): two users may have the same one.
//
// # Handlers
//
// An answer below 500 is final: the transaction commits, and the answer is stored, also one of 400
// or 404. Any other answer, and a panic, rolls the transaction back. So do the answers that a later
// request may not get: 401, 403, 408, 409, 423, 425 and 429. A handler that has written something
// and fails answers 5xx. It must do so after an error of its transaction (a deadlock, a
// serialization failure), and must not end the transaction itself: no answer is stored of a
// transaction that has ended. The middleware runs no handler a second time: the client sends the
// request again.
//
// Effects outside of the database are not rolled back: give their receiver a key of its own, or
// write them into an outbox in the transaction. The answer is kept in memory until the commit, so
// that a handler cannot flush or hijack.
//
// # Costs
//
// A request costs a transaction with a row lock, a row of dblock_answers, and a row of dblock_locks
// for a day. On SQLite handlers run one at a time, and requests wait for each other (option Wait).
// Call Sweep now and then. The application needs SELECT, INSERT, UPDATE and DELETE on
// dblock_answers, which the text of Schema makes.
package httpidem
