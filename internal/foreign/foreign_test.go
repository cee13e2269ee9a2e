package foreign

import (
	"errors"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/driver"
)

func TestServersThatOnlySpeakTheProtocolAreRefused(t *testing.T) {
	for version, name := range map[string]string{
		"CockroachDB CCL v23.1.11 (x86_64-pc-linux-gnu, built 2023/09/27, go1.19.10)":                   "CockroachDB",
		"PostgreSQL 11.2-YB-2.18.3.0-b0 on x86_64-pc-linux-gnu, compiled by clang version 15.0.3":       "YugabyteDB",
		"PostgreSQL 8.0.2 on i686-pc-linux-gnu, compiled by GCC gcc (GCC) 3.4.2, Redshift 1.0.56754":    "Redshift",
		"PostgreSQL 15.18 (Debian 15.18-0+deb12u1) on x86_64-pc-linux-gnu, compiled by gcc 12.2.0":      "",
		"PostgreSQL 16.4 on aarch64-unknown-linux-gnu, compiled by aarch64-unknown-linux-gnu-gcc 9.5.0": "",
		"8.0.11-TiDB-v7.5.1":               "TiDB",
		"5.7.25-OceanBase_CE-v4.2.1.0":     "OceanBase",
		"8.0.30-Vitess":                    "Vitess",
		"9.7.4-2":                          "",
		"10.11.18-MariaDB-0+deb12u1-log":   "",
		"8.0.39-0ubuntu0.22.04.1 (Ubuntu)": "",
	} {
		err := Refuse(version)
		if name == "" && err != nil || name != "" && (!errors.Is(err, driver.ErrConfig) ||
			!strings.Contains(err.Error(), name)) {
			t.Errorf("%s: %v", version, err)
		}
	}
}
