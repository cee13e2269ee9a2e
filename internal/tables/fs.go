package tables

import (
	"io"
	"io/fs"
	"strings"
)

// FS has migrations whose statements name their place.
type FS struct {
	fs.FS
	In    *In
	Place func(text string) string // returns a statement with its place
}

// Open opens a file with the place in its text.
func (f FS) Open(name string) (fs.File, error) {
	file, err := f.FS.Open(name)
	if err != nil || !strings.HasSuffix(name, ".sql") {
		return file, err
	}
	text, err := io.ReadAll(file)
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return placedFile{file, strings.NewReader(f.Place(string(text)))}, nil
}

type placedFile struct {
	fs.File
	text io.Reader
}

func (f placedFile) Read(p []byte) (int, error) { return f.text.Read(p) }
