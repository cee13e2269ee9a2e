package mysqlserver

import "testing"

func TestServersOfWhichSeveralWriteAreToldApart(t *testing.T) {
	for _, test := range []struct {
		wsrep, group, single string
		several              bool
	}{
		{"", "", "", false}, // MySQL without the plugin
		{"OFF", "", "", false},
		{"ON", "", "", true},
		{"", "g", "OFF", true},
		{"", "g", "ON", false},
		{"", "", "OFF", false}, // the plugin, but no group
	} {
		which := SeveralWriters(map[string]string{
			"wsrep_on": test.wsrep, "group_replication_group_name": test.group,
			"group_replication_single_primary_mode": test.single,
		})
		if which != "" != test.several {
			t.Errorf("%+v: %q", test, which)
		}
	}
}
