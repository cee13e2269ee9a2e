package mysql

import (
	"context"
	"database/sql"

	"github.com/dblock-go/dblock/internal/driver"
)

// triggers finds a trigger on one of dblock's tables that is not dblock's own. The server shows
// triggers only to a user with the right TRIGGER on their tables: for others see errReplaced.
const triggers = "SELECT trigger_name, event_object_table FROM information_schema.triggers " +
	"WHERE event_object_schema = DATABASE() AND LEFT(event_object_table, 7) = 'dblock_' " +
	"AND LEFT(trigger_name, 7) <> 'dblock_' LIMIT 1"

// refuseTriggers returns ErrConfig if a table has a trigger: the insert id of a statement, in which
// dblock's statements return tokens and tickets, would be that of the trigger's last statement.
func (e *engine) refuseTriggers(ctx context.Context, on *sql.Conn) error {
	var name, table string
	there, err := found(on.QueryRowContext(ctx, e.prepared.tables.In().MySQLMigration(triggers)).Scan(&name, &table))
	if err == nil && there {
		return driver.Triggered("trigger", name, table)
	}
	return err
}
