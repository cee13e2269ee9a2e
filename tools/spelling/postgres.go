package spelling

import (
	"fmt"
	"go/format"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// postgres has each statement that must act prove it, and writes the form of each statement whose
// texts are parameters in hexadecimal digits.
func postgres(files Folder) (Folder, error) {
	spelled := Folder{}
	texts := map[string][]string{} // by constant: the parameters that are texts
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, ".sql.go") {
			spelled[name] = constants.ReplaceAllStringFunc(files[name], prove)
			maps.Copy(texts, textsOf(files[name]))
		}
	}
	var b strings.Builder
	b.WriteString(generated + "package postgresdb\n\n" +
		"// Digits are the statements with texts as parameters in hexadecimal digits, by their own text.\n" +
		"var Digits = map[string]string{\n")
	for _, q := range spelled.queries() {
		if texts[q.constant] != nil {
			fmt.Fprintf(&b, "\t%s: `%s`,\n", q.constant, digits(q.text, texts[q.constant]))
		}
	}
	b.WriteString("}\n")
	text, err := format.Source([]byte(b.String()))
	spelled["digits.go"] = string(text)
	return spelled, err
}

// prove writes the kind :exec as a statement that fails if it changes nothing, by a division by
// zero. The check runs in the server, since the COMMIT may travel with the statement.
func prove(constant string) string {
	kind, text, _ := strings.Cut(constant, "\n")
	if !strings.HasSuffix(kind, " :exec") || strings.HasPrefix(text, "WITH done AS (") {
		return constant
	}
	return kind + "\nWITH done AS (" + strings.TrimSuffix(text, "`") + " RETURNING 1) SELECT 1 / count(*) FROM done`"
}

var (
	structs = regexp.MustCompile(`(?s)type (\w+)Params struct \{\n(.*?)\n\}`)
	singles = regexp.MustCompile(`func \(q \*Queries\) (\w+)\(ctx context\.Context, \w+ string\)`)
	numbers = regexp.MustCompile(`\$[0-9]+`)
)

// textsOf returns the parameters of a file's statements that are texts.
func textsOf(file string) map[string][]string {
	texts := map[string][]string{}
	for _, found := range singles.FindAllStringSubmatch(file, -1) {
		texts[found[1]] = []string{"$1"}
	}
	for _, found := range structs.FindAllStringSubmatch(file, -1) {
		for i, field := range strings.Split(found[2], "\n") {
			if strings.HasSuffix(field, " string") {
				texts[found[1]] = append(texts[found[1]], fmt.Sprint("$", i+1))
			}
		}
	}
	return texts
}

// digits has a statement read some parameters as hexadecimal digits of texts in UTF-8.
func digits(text string, parameters []string) string {
	return numbers.ReplaceAllStringFunc(text, func(p string) string {
		if !slices.Contains(parameters, p) {
			return p
		}
		return "convert_from(decode(" + p + ", 'hex'), 'UTF8')"
	})
}
