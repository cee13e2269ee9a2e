package spelling

import (
	"maps"
	"strings"
	"testing"
)

// Broken by a change of gen by hand, or of this package without scripts/generate.
func TestGenHasWhatIsSpelled(t *testing.T) {
	for name := range folders {
		files, err := Read("../../gen/" + name)
		if err != nil {
			t.Fatal(err)
		}
		spelled, err := Spell(name, files)
		if err != nil {
			t.Fatal(err)
		}
		for file, text := range spelled {
			if files[file] != text {
				t.Errorf("gen/%s/%s is not what scripts/generate makes", name, file)
			}
		}
	}
}

// Broken by words that no statement has: the server would get those of another one.
func TestWordsThatNoStatementHasAreAnError(t *testing.T) {
	files, err := Read("../../gen/mysqldb")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"LOCK IN SHARE MODE", "(SELECT c.now_us FROM dblock_clock c)"} {
		changed := maps.Clone(files)
		for name, text := range changed {
			changed[name] = strings.ReplaceAll(text, part, "other = ")
		}
		if missing(changed) == nil {
			t.Errorf("without %q", part)
		}
	}
}

func TestEveryConstantIsAskedForWhateverItsName(t *testing.T) {
	files, err := Read("../../gen/mysqldb")
	if err != nil {
		t.Fatal(err)
	}
	files["more.sql.go"] = "ExecContext(ctx, quick, a)\n\tquery := quiet\n\tExecContext(ctx, query, b...)\n"
	spelled, err := mysql(files)
	if err != nil {
		t.Fatal(err)
	}
	const want = "ExecContext(ctx, q.db.Text(quick), a)\n\tquery := q.db.Text(quiet)\n\tExecContext(ctx, query, b...)\n"
	if got := spelled["more.sql.go"]; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
