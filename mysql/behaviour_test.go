package mysql_test

import (
	"testing"

	"github.com/dblock-go/dblock/internal/enginetest"
	"github.com/dblock-go/dblock/mysql"
)

func TestBehaviour(t *testing.T) {
	enginetest.Run(t, enginetest.Wiring{
		Name: "MySQL", Kind: enginetest.MySQL, Open: enginetest.OnSQL(mysql.New),
		Settings: enginetest.MySQLSettings, ReadOnly: enginetest.MySQLReadOnly,
	})
	enginetest.Run(t, enginetest.Wiring{
		Name: "MariaDB", Kind: enginetest.MariaDB, Open: enginetest.OnSQL(mysql.New),
		Settings: enginetest.MariaDBSettings, ReadOnly: enginetest.MariaDBReadOnly,
	})
}

func TestNamedBehaviour(t *testing.T) {
	for name, kind := range map[string]string{"MySQL": enginetest.MySQL, "MariaDB": enginetest.MariaDB} {
		enginetest.RunNative(t, enginetest.Wiring{Name: name, Kind: kind, Open: enginetest.OnSQL(mysql.Named)}, false)
	}
}
