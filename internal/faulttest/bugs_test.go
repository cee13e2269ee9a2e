package faulttest

import (
	"database/sql"

	"github.com/dblock-go/dblock/driver"
)

var bugs = map[string]func(driver.Backend, *sql.DB) driver.Backend{}
