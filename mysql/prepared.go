package mysql

import (
	"context"
	"database/sql"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dblock-go/dblock/internal/tables"
)

// Text returns a statement in the words of the server. Before the engine has met that, it runs only
// statements that are the same on all.
func (p *prepared) Text(query string) string {
	s := p.server.Load()
	switch {
	case s == nil:
		return query
	case p.byView:
		return s.facts().byView.Of(query)
	}
	return s.facts().texts.Of(query)
}

// placed returns a statement with the database of the tables.
func (p *prepared) placed(text string) string { return p.tables.In().MySQL(text) }

// prepared runs statements that it prepares once. An unprepared statement with parameters takes two
// round trips on a pool that does not interpolate them, and nothing shows whether a pool does. The
// texts are the generated ones, some forty.
//
// If the server has no room for another prepared statement of any client, the statement is sent as
// text: see literal.
type prepared struct {
	on      connection
	charset *atomic.Value           // string: the character set of the pool's connections, once known
	server  *atomic.Pointer[server] // nil: the engine has not met the server
	*statements
	tables *tables.Place // where the tables are
	byView bool          // statements keep naming the view, whose clock a test moves
}

// connection is a pool, or a connection of one.
type connection interface {
	ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error)
	PrepareContext(ctx context.Context, text string) (*sql.Stmt, error)
	QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, text string, args ...any) *sql.Row
}

// statements is separate from prepared so that it outlives prepared. An engine is never closed, so
// its statements on the application's pool end with the last reference to prepared.
type statements struct {
	turn   chan struct{} // held by the goroutine that prepares
	mu     sync.Mutex    // guards all fields below
	byText map[string]*sql.Stmt
	wanted map[string]bool // used inside transactions, not prepared yet
}

func newStatements() *statements {
	return &statements{turn: make(chan struct{}, 1), byText: map[string]*sql.Stmt{}, wanted: map[string]bool{}}
}

func preparedOn(db *sql.DB) *prepared {
	p := &prepared{on: db, charset: new(atomic.Value), server: new(atomic.Pointer[server]),
		tables: new(tables.Place), statements: newStatements()}
	runtime.AddCleanup(p, func(s *statements) { go s.close() }, p.statements)
	return p
}

// onConn needs no cleanup: the statements end with the connection.
func (p *prepared) onConn(conn *sql.Conn) *prepared {
	return &prepared{on: conn, charset: p.charset, server: p.server, statements: newStatements(),
		tables: p.tables, byView: p.byView}
}

func (s *statements) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, stmt := range s.byText {
		_ = stmt.Close()
	}
}

// prepare prepares each text once: of many goroutines that need it, the others wait for the first.
// A waiter holds no connection, and no statement is closed here: Close waits for the connections on
// which the statement is in use.
func (p *prepared) prepare(ctx context.Context, text string) (*sql.Stmt, error) {
	if stmt := p.ready(text); stmt != nil {
		return stmt, nil
	}
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if stmt := p.ready(text); stmt != nil {
		return stmt, nil
	}
	stmt, err := p.on.PrepareContext(ctx, p.placed(text))
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byText[text] = stmt
	delete(p.wanted, text)
	return stmt, nil
}

func (s *statements) ready(text string) *sql.Stmt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byText[text]
}

// inTx returns the statement for use in a transaction. If it is not prepared yet, inTx returns nil
// and records it in wanted.
func (p *prepared) inTx(ctx context.Context, tx *sql.Tx, text string) *sql.Stmt {
	p.mu.Lock()
	stmt := p.byText[text]
	if stmt == nil {
		p.wanted[text] = true
	}
	p.mu.Unlock()
	if stmt == nil {
		return nil
	}
	return tx.StmtContext(ctx, stmt)
}

// catchUp prepares the wanted statements. MUST be called without holding a connection of the pool:
// preparing takes one, and if every connection waits for another, all are blocked.
func (p *prepared) catchUp(ctx context.Context) error {
	p.mu.Lock()
	texts := slices.Collect(maps.Keys(p.wanted))
	p.mu.Unlock()
	for _, text := range texts {
		if _, err := p.prepare(ctx, text); exhausted(err) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

// PrepareContext exists only for the generated interface.
func (p *prepared) PrepareContext(ctx context.Context, text string) (*sql.Stmt, error) {
	return p.on.PrepareContext(ctx, text)
}

func (p *prepared) ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error) {
	result, err := p.exec(ctx, text, args)
	return proven(text, result, err)
}

func (p *prepared) exec(ctx context.Context, text string, args []any) (result sql.Result, err error) {
	defer runtime.KeepAlive(p)
	s, err := p.prepare(ctx, text)
	if err == nil {
		result, err = s.ExecContext(ctx, args...)
	}
	if exhausted(err) {
		text, args = p.literal(text, args)
		return p.on.ExecContext(ctx, text, args...)
	}
	return result, err
}

func (p *prepared) QueryContext(ctx context.Context, text string, args ...any) (rows *sql.Rows, err error) {
	defer runtime.KeepAlive(p)
	s, err := p.prepare(ctx, text)
	if err == nil {
		rows, err = s.QueryContext(ctx, args...)
	}
	if exhausted(err) {
		text, args = p.literal(text, args)
		return p.on.QueryContext(ctx, text, args...)
	}
	return rows, err
}

func (p *prepared) QueryRowContext(ctx context.Context, text string, args ...any) *sql.Row {
	defer runtime.KeepAlive(p)
	s, err := p.prepare(ctx, text)
	if err == nil {
		row := s.QueryRowContext(ctx, args...)
		if err = row.Err(); !exhausted(err) {
			return row
		}
	}
	if exhausted(err) {
		text, args = p.literal(text, args)
	} else {
		text = p.placed(text)
	}
	// a Row cannot carry an error: the statement fails again
	return p.on.QueryRowContext(ctx, text, args...)
}

// preparedTx runs prepared statements in a transaction. It prepares nothing through the pool.
type preparedTx struct {
	p  *prepared
	tx *sql.Tx
}

func (t preparedTx) Text(query string) string { return t.p.Text(query) }

func (t preparedTx) PrepareContext(ctx context.Context, text string) (*sql.Stmt, error) {
	return t.tx.PrepareContext(ctx, text)
}

func (t preparedTx) ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error) {
	result, err := t.exec(ctx, text, args)
	return proven(text, result, err)
}

func (t preparedTx) exec(ctx context.Context, text string, args []any) (result sql.Result, err error) {
	defer runtime.KeepAlive(t.p)
	if s := t.p.inTx(ctx, t.tx, text); s != nil {
		result, err = s.ExecContext(ctx, args...)
	} else {
		result, err = t.tx.ExecContext(ctx, t.p.placed(text), args...)
	}
	if exhausted(err) {
		text, args = t.p.literal(text, args)
		return t.tx.ExecContext(ctx, text, args...)
	}
	return result, err
}

func (t preparedTx) QueryContext(ctx context.Context, text string, args ...any) (rows *sql.Rows, err error) {
	defer runtime.KeepAlive(t.p)
	if s := t.p.inTx(ctx, t.tx, text); s != nil {
		rows, err = s.QueryContext(ctx, args...)
	} else {
		rows, err = t.tx.QueryContext(ctx, t.p.placed(text), args...)
	}
	if exhausted(err) {
		text, args = t.p.literal(text, args)
		return t.tx.QueryContext(ctx, text, args...)
	}
	return rows, err
}

func (t preparedTx) QueryRowContext(ctx context.Context, text string, args ...any) (row *sql.Row) {
	defer runtime.KeepAlive(t.p)
	if s := t.p.inTx(ctx, t.tx, text); s != nil {
		row = s.QueryRowContext(ctx, args...)
	} else {
		row = t.tx.QueryRowContext(ctx, t.p.placed(text), args...)
	}
	if exhausted(row.Err()) {
		text, args = t.p.literal(text, args)
		return t.tx.QueryRowContext(ctx, text, args...)
	}
	return row
}
