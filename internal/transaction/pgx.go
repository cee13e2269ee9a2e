package transaction

import (
	"context"
	"reflect"
)

// pgxQueries is a pgx.Tx. Its methods return types of pgx's own. No interface can name these types
// without an import of pgx: two interfaces with the same methods are two types. So the calls use
// reflection, which costs a microsecond.
type pgxQueries struct{ exec, queryRow reflect.Value }

// pgxEnds are the methods that a transaction has, and a pool or a connection has not.
type pgxEnds interface {
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

type scanner interface{ Scan(into ...any) error }

var (
	contextType = reflect.TypeFor[context.Context]()
	stringType  = reflect.TypeFor[string]()
	argsType    = reflect.TypeFor[[]any]()
	errorType   = reflect.TypeFor[error]()
	scannerType = reflect.TypeFor[scanner]()
)

func ofPgx(tx any) (Queries, bool) {
	if _, ok := tx.(pgxEnds); !ok {
		return nil, false
	}
	v := reflect.ValueOf(tx)
	q := pgxQueries{exec: v.MethodByName("Exec"), queryRow: v.MethodByName("QueryRow")}
	return q, takesStatement(q.exec, 2) && q.exec.Type().Out(1) == errorType &&
		takesStatement(q.queryRow, 1) && q.queryRow.Type().Out(0).Implements(scannerType)
}

// takesStatement reports whether a method is a func(ctx context.Context, sql string, args ...any)
// with the given number of results.
func takesStatement(method reflect.Value, results int) bool {
	if !method.IsValid() {
		return false
	}
	t := method.Type()
	return t.IsVariadic() && t.NumIn() == 3 && t.In(0) == contextType && t.In(1) == stringType && t.In(2) == argsType &&
		t.NumOut() == results
}

func (q pgxQueries) Exec(ctx context.Context, text string, args ...any) error {
	err, _ := q.exec.CallSlice(statement(ctx, text, args))[1].Interface().(error)
	return err
}

func (q pgxQueries) Row(ctx context.Context, text string, args []any, into ...any) (bool, error) {
	row := q.queryRow.CallSlice(statement(ctx, text, args))[0].Interface().(scanner)
	return found(row.Scan(into...))
}

func statement(ctx context.Context, text string, args []any) []reflect.Value {
	return []reflect.Value{reflect.ValueOf(ctx), reflect.ValueOf(text), reflect.ValueOf(args)}
}

func isNil(tx any) bool {
	v := reflect.ValueOf(tx)
	switch v.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Interface, reflect.Map, reflect.Func, reflect.Chan, reflect.Slice:
		return v.IsNil()
	}
	return false
}
