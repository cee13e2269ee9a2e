package migrate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/tables"
	"github.com/dblock-go/dblock/internal/transaction"
	"github.com/dblock-go/dblock/migrations"
)

// Engine is a kind of database that has migrations.
type Engine = migrations.Engine

// The engines.
const (
	Postgres = migrations.Postgres
	MySQL    = migrations.MySQL // MariaDB too
	SQLite   = migrations.SQLite
)

// Set is a set of tables with a history of its own. No set needs another. Set.In names the schema
// or database of the tables.
type Set = migrations.Set

// The sets of tables.
var (
	Locks    = migrations.Locks    // for a client
	Fences   = migrations.Fences   // for fence.Check
	Versions = migrations.Versions // for package optimistic
)

// pause is the longest time between two tries to take a lock that another process holds.
const pause = 100 * time.Millisecond

// Migration is one version of the tables: one of this build, or one of the database that this build
// does not know.
type Migration struct {
	Set     Set // without the place of Set.In
	Version int64
	File    string // "" where this build does not know the version
	Applied bool
}

// Up migrates the tables of some sets to the version of this build, one set after the other.
// Default: Locks. Any number of processes may call it at once: one does the work, and the others
// wait for it until ctx ends. After an error the versions before the one that it names are applied.
// On PostgreSQL and SQLite nothing of that version is left. On every engine Up may be called again.
// Tables that a newer build has migrated stay unchanged: Up returns nil if this build can work with
// them, and otherwise dblock.ErrSchema with the command to run. Tables that were emptied, as by a
// TRUNCATE of all tables, get back the row that has their version; what was held is free. If the
// tables are current, Up succeeds with the rights of an application (docs/privileges), which has
// none to the history.
func Up(ctx context.Context, db *sql.DB, engine Engine, sets ...Set) error {
	ms, err := migratorsOf(db, engine, sets)
	return forEach(ms, err, func(m *migrator) error { return m.up(ctx) })
}

func forEach(ms []*migrator, err error, do func(m *migrator) error) error {
	for _, m := range ms {
		if err = do(m); err != nil {
			return err
		}
	}
	return err
}

// up upgrades the tables. A user without the rights to do so may call up as long as there is
// nothing to do: the tables say so where the history is denied or, on MySQL, not shown.
func (m *migrator) up(ctx context.Context) error {
	err := m.upgrade(ctx)
	switch {
	case !transaction.Denied(err):
		return err
	case m.current(ctx) == nil:
		return nil
	}
	return fmt.Errorf("%w: docs/privileges/%s-migrate.sql has the rights that Up needs", err, m.engine)
}

func (m *migrator) upgrade(ctx context.Context) error {
	statuses, err := m.statuses(ctx)
	if err != nil {
		return fmt.Errorf("dblock: migrate %s up: %w", m.set, err)
	}
	if m.emptied(ctx) {
		theirs, err := m.refill(ctx)
		if err == nil && theirs {
			err = m.current(ctx)
		}
		if err != nil {
			return fmt.Errorf("dblock: migrate %s up: writing the version of tables that were emptied: %w", m.set, err)
		}
		if theirs {
			return nil
		}
	}
	for _, s := range statuses {
		if s.Applied {
			continue
		}
		err := m.apply(ctx, s.Version, true)
		if err != nil && !transaction.Denied(err) {
			err = errors.Join(err, m.foreign(ctx, s.Version))
		}
		if err != nil {
			return fmt.Errorf("dblock: migrate %s up to version %d: %w", m.set, s.Version, err)
		}
	}
	if last := statuses[len(statuses)-1]; last.File == "" {
		if err := m.current(ctx); err != nil {
			return fmt.Errorf("dblock: migrate %s up: %w", m.set, err)
		}
	}
	return nil
}

// emptied reports whether the tables have lost the row that has their version.
func (m *migrator) emptied(ctx context.Context) bool {
	var version sql.NullInt64
	return m.set == Locks &&
		m.db.QueryRowContext(ctx, m.dialect.placed(tablesVersion[Locks])).Scan(&version) == nil && !version.Valid
}

// refill writes the row again that has the version of the tables, under the lock. theirs: the
// application's own history made the tables, and Up has nothing to apply.
func (m *migrator) refill(ctx context.Context) (theirs bool, err error) {
	err = wait(ctx, func() error {
		conn, err := m.db.Conn(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		if err := m.dialect.begin(ctx, conn); err != nil {
			return err
		}
		theirs, err = m.refillOn(ctx, conn)
		return errors.Join(err, m.dialect.end(ctx, conn, err == nil))
	})
	return theirs, err
}

// refillOn takes the version from the history. A history without a version was emptied with the
// tables, and one that is not there is the application's own. Then the tables are at version 1 at
// least, and the row says no more. On MySQL the migration can be run again, and writes the row.
func (m *migrator) refillOn(ctx context.Context, conn *sql.Conn) (theirs bool, err error) {
	applied, err := m.applied(ctx, conn)
	if err != nil {
		return false, err
	}
	version := int64(0)
	for v := range applied {
		version = max(version, v)
	}
	switch {
	case version > driver.SchemaVersion:
		return false, fmt.Errorf("%s is at version %d, which this build does not know: run Up of the newer build",
			m.set.Table(), version)
	case version > 0:
	case m.engine == MySQL:
		return false, nil
	default:
		version, theirs = 1, applied == nil
		if store, err := m.dialect.store(m.set.Table()); err != nil {
			return false, err
		} else if !theirs {
			if err := store.Insert(ctx, conn, database.InsertRequest{Version: version}); err != nil {
				return false, err
			}
		}
	}
	id, err := m.dialect.databaseID(ctx, conn)
	if err != nil {
		return false, err
	}
	text := fmt.Sprintf("INSERT INTO dblock_schema (version, usable_from, database_id) SELECT %d, %[1]d, %s "+
		"WHERE NOT EXISTS (SELECT v.version FROM dblock_schema v)", version, id)
	if _, err := conn.ExecContext(ctx, m.dialect.placed(text)); err != nil {
		return false, err
	}
	var there sql.NullInt64
	err = conn.QueryRowContext(ctx, m.dialect.placed(tablesVersion[Locks])).Scan(&there)
	if err == nil && !there.Valid {
		err = errors.New("dblock_schema did not keep the row: remove triggers and rules from it")
	}
	return theirs, err
}

// current returns an error if this build cannot work with the tables as they are.
func (m *migrator) current(ctx context.Context) error {
	if m.set != Locks {
		return m.db.QueryRowContext(ctx, tablesVersion[m.set]).Scan(new(int64))
	}
	var schema driver.Schema
	err := m.db.QueryRowContext(ctx,
		m.dialect.placed("SELECT version, usable_from FROM dblock_schema")).Scan(&schema.Version, &schema.UsableFrom)
	if err != nil {
		return err
	}
	return schema.Check()
}

// Down removes everything that Up made for some sets, except the empty version table and the schema
// of Set.In. Default: Locks, and with them every lock that is held. A resource without its fence
// accepts any token, and a name without its version begins at 0. So remove these only when no
// process has an old token or version.
func Down(ctx context.Context, db *sql.DB, engine Engine, sets ...Set) error {
	ms, err := migratorsOf(db, engine, sets)
	slices.Reverse(ms)
	return forEach(ms, err, func(m *migrator) error { return m.down(ctx, 0) })
}

// DownTo takes the tables of the locks back to an older version, from 1 to this build's. It is for
// the return to a build that cannot work with the present tables (docs/upgrading.md). Call it from
// the newer build, and only when no client of any build is running. It deletes the additions of the
// newer versions. Tables at that version or below it stay unchanged. After an error the versions
// above the one that it names are gone, and DownTo may be called again. Default: Locks, where the
// connection looks; Locks.In names another place.
func DownTo(ctx context.Context, db *sql.DB, engine Engine, version int64, locks ...Set) error {
	ms, err := migratorsOf(db, engine, locks)
	if err != nil {
		return err
	}
	if len(ms) != 1 || ms[0].set != Locks {
		return fmt.Errorf("dblock: migrate: DownTo of %v: only %s have older versions", locks, Locks)
	}
	if version < 1 || version > driver.SchemaVersion {
		return fmt.Errorf("dblock: migrate: DownTo version %d: want 1 to %d", version, driver.SchemaVersion)
	}
	return ms[0].down(ctx, version)
}

// down removes every version above to.
func (m *migrator) down(ctx context.Context, to int64) error {
	statuses, err := m.statuses(ctx)
	if err == nil {
		err = m.dropsViews(ctx)
	}
	if err != nil {
		return fmt.Errorf("dblock: migrate %s down: %w", m.set, err)
	}
	for _, s := range slices.Backward(statuses) {
		if s.Applied && s.File == "" {
			return fmt.Errorf("dblock: migrate %s down: %s is at version %d, which this build does not know: run "+
				"Down of the newer build", m.set, m.set.Table(), s.Version)
		}
		if !s.Applied || s.Version <= to {
			continue
		}
		if err := m.apply(ctx, s.Version, false); err != nil {
			return fmt.Errorf("dblock: migrate %s down from version %d: %w", m.set, s.Version, err)
		}
	}
	return nil
}

// dropsViews returns ErrConfig if the server would stop in the middle of Down, at the views.
func (m *migrator) dropsViews(ctx context.Context) error {
	if m.engine != MySQL || m.set != Locks {
		return nil
	}
	var version string
	if err := m.db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
		return err
	}
	if strings.Contains(version, "Vitess") {
		return driver.Fail(driver.ErrConfig, errors.New("vtgate does not find views that are to be dropped: "+
			"docs/vitess.md has the statements that remove the tables"))
	}
	return nil
}

// Status returns the migrations of some sets, and whether they are applied, set by set, lowest
// version first. Default: Locks. It only reads, and takes no lock.
func Status(ctx context.Context, db *sql.DB, engine Engine, sets ...Set) ([]Migration, error) {
	ms, err := migratorsOf(db, engine, sets)
	if err != nil {
		return nil, err
	}
	var all []Migration
	for _, m := range ms {
		statuses, err := m.statuses(ctx)
		if err != nil {
			return nil, fmt.Errorf("dblock: migrate %s status: %w", m.set, err)
		}
		all = append(all, statuses...)
	}
	return all, nil
}

// migrator runs goose on one engine of one pool, for one set.
type migrator struct {
	db      *sql.DB
	dialect dialect
	engine  Engine
	set     Set
	files   fs.FS
}

// migratorsOf validates all sets before the first is migrated.
func migratorsOf(db *sql.DB, engine Engine, sets []Set) ([]*migrator, error) {
	if db == nil {
		return nil, errors.New("dblock: migrate: the pool is nil")
	}
	var ms []*migrator
	for _, set := range orLocks(sets) {
		files, err := migrations.FS(engine, set)
		if err != nil {
			return nil, err
		}
		var in *tables.In
		if placed, is := files.(tables.FS); is {
			in = placed.In
		}
		ms = append(ms, &migrator{
			db: db, dialect: dialectOf(engine, in), engine: engine, set: set.In(""), files: files,
		})
	}
	return ms, nil
}

func orLocks(sets []Set) []Set {
	if len(sets) == 0 {
		return []Set{Locks}
	}
	return sets
}

// provider returns a goose.Provider for one run. It MUST NOT be closed: that would close the
// caller's pool. It MUST NOT be used again: it remembers the version table even if the transaction
// that made that table was rolled back.
func (m *migrator) provider() (*goose.Provider, error) {
	store, err := m.dialect.store(m.set.Table())
	if err != nil {
		return nil, err
	}
	r := &run{Store: store, dialect: m.dialect}
	return goose.NewProvider(goose.DialectCustom, m.db, m.files,
		goose.WithStore(r),
		goose.WithSessionLocker(r),
		// Statements run on the locked connection unchanged: the transaction is the run's.
		goose.WithIsolateDDL(true),
		goose.WithDisableGlobalRegistry(true),
		goose.WithLogger(goose.NopLogger()),
	)
}

// apply runs one version up or down, unless another process has done so meanwhile. It uses
// ApplyVersion, since Provider.Up makes the version table before it locks.
func (m *migrator) apply(ctx context.Context, version int64, up bool) error {
	return wait(ctx, func() error {
		p, err := m.provider()
		if err != nil {
			return err
		}
		_, err = p.ApplyVersion(ctx, version, up)
		switch {
		case errors.Is(err, goose.ErrAlreadyApplied), errors.Is(err, goose.ErrNotApplied):
			return nil
		case err != nil && ctx.Err() != nil && !errors.Is(err, ctx.Err()): // pgx returns driver.ErrBadConn only
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		return err
	})
}

// statuses reads the history and makes no version table: a database without one has no versions,
// and a standby accepts none.
func (m *migrator) statuses(ctx context.Context) ([]Migration, error) {
	p, err := m.provider()
	if err != nil {
		return nil, err
	}
	var statuses []Migration
	err = wait(ctx, func() error {
		applied, err := m.applied(ctx, m.db)
		if err != nil {
			return err
		}
		statuses = statuses[:0]
		for _, s := range p.ListSources() {
			statuses = append(statuses, Migration{Set: m.set, Version: s.Version, File: s.Path,
				Applied: applied[s.Version]})
			delete(applied, s.Version)
		}
		for version := range applied {
			statuses = append(statuses, Migration{Set: m.set, Version: version, Applied: true})
		}
		slices.SortFunc(statuses, func(a, b Migration) int { return int(a.Version - b.Version) })
		return nil
	})
	return statuses, m.mismatch(err)
}

// mismatch explains an error that comes from a pool of another kind of server than the engine's.
func (m *migrator) mismatch(err error) error {
	of := map[Engine]string{Postgres: "PostgreSQL", MySQL: "MySQL or MariaDB", SQLite: "SQLite"}
	if server := transaction.Server(err); server != "" && server != of[m.engine] {
		return driver.Fail(driver.ErrConfig, fmt.Errorf("the engine is %q, and the pool is of %s: %w", m.engine, server,
			err))
	}
	return err
}

// applied returns the versions in the history, nil where there is no history.
func (m *migrator) applied(ctx context.Context, db database.DBTxConn) (map[int64]bool, error) {
	store, err := m.dialect.store(m.set.Table())
	if err != nil {
		return nil, err
	}
	there, err := m.dialect.tableExists(ctx, db, store)
	if err != nil || !there {
		return nil, err
	}
	rows, err := store.ListMigrations(ctx, db)
	if err != nil {
		return nil, err
	}
	applied := make(map[int64]bool)
	for _, row := range rows {
		if row.Version > 0 { // goose writes a version 0 when it makes the table
			applied[row.Version] = true
		}
	}
	return applied, nil
}

// tablesVersion has the statements that read the version of a set's tables, and fail where the
// tables are missing. A set without a version in its tables has version 1 only.
var tablesVersion = map[Set]string{
	Locks:    "SELECT max(version) FROM dblock_schema",
	Fences:   "SELECT 1 + count(*) FROM dblock_fences WHERE resource = ''",
	Versions: "SELECT 1 + count(*) FROM dblock_versions WHERE name = ''",
}

// foreign explains a version that could not be applied because another history had made the tables.
// It reads the tables' version first and dblock's history second: a version that Up made cannot be
// in the first only.
func (m *migrator) foreign(ctx context.Context, version int64) error {
	var there int64
	if err := m.db.QueryRowContext(ctx, m.dialect.placed(tablesVersion[m.set])).Scan(&there); err != nil ||
		there < version {
		return nil
	}
	if applied, err := m.applied(ctx, m.db); err != nil || applied[version] {
		return nil
	}
	return fmt.Errorf("the tables are at version %d already, but not by %s: go on with the history that made them",
		there, m.set.Table())
}

// wait repeats try while it loses a race: for the migration lock, or against transactions of
// clients that run meanwhile. After such an error try may be called again.
func wait(ctx context.Context, try func() error) error {
	var lost error
	for {
		err := try()
		if !errors.Is(err, errLocked) && !transaction.Retryable(err) {
			if lost != nil && err != nil && ctx.Err() != nil {
				return fmt.Errorf("another process was in the way (%w): %w", lost, err)
			}
			return err
		}
		lost = err
		timer := time.NewTimer(pause/2 + rand.N(pause/2))
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("another process is in the way (%w): %w", lost, context.Cause(ctx))
		case <-timer.C:
		}
	}
}
