package mysqlserver

import (
	"errors"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/driver"
)

func TestServersThatOnlySpeakTheProtocolAreRefused(t *testing.T) {
	for version, name := range map[string]string{
		"8.0.11-TiDB-v7.5.1":               "TiDB",
		"5.7.25-OceanBase_CE-v4.2.1.0":     "OceanBase",
		"8.0.30-Vitess":                    "Vitess",
		"9.7.4-2":                          "",
		"10.11.18-MariaDB-0+deb12u1-log":   "",
		"8.0.39-0ubuntu0.22.04.1 (Ubuntu)": "",
	} {
		err := Refuse(version)
		if name == "" && err != nil || name != "" && (!errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), name)) {
			t.Errorf("%s: %v", version, err)
		}
	}
}
