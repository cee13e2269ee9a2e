package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"time"
	"unicode"
)

// writeJSON writes a value of --json as one line. Its form is an interface, the same for all
// commands: the keys of an object are the fields of v in snake case, and each is always there; a
// list or map is never null; a duration is a number of seconds; a time that is not known is null.
func writeJSON(w io.Writer, v any) error {
	var line bytes.Buffer
	if err := encode(&line, reflect.ValueOf(v)); err != nil {
		return err
	}
	line.WriteByte('\n')
	_, err := w.Write(line.Bytes())
	return err
}

func encode(b *bytes.Buffer, v reflect.Value) error {
	switch is := v.Interface().(type) {
	case time.Duration:
		return marshal(b, is.Seconds())
	case time.Time:
		if is.IsZero() {
			return marshal(b, nil)
		}
		return marshal(b, is)
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return marshal(b, nil)
		}
		return encode(b, v.Elem())
	case reflect.Struct:
		return object(b, v)
	case reflect.Slice:
		b.WriteByte('[')
		for i := range v.Len() {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := encode(b, v.Index(i)); err != nil {
				return err
			}
		}
		b.WriteByte(']')
		return nil
	case reflect.Map:
		if v.IsNil() {
			b.WriteString("{}")
			return nil
		}
		if v.Type() != reflect.TypeFor[map[string]string]() {
			return fmt.Errorf("a map of type %v has no form in JSON here", v.Type())
		}
	case reflect.Array, reflect.Interface:
		return fmt.Errorf("a value of type %v has no form in JSON here", v.Type())
	}
	return marshal(b, v.Interface())
}

// object writes a struct. The fields of an embedded struct are its own.
func object(b *bytes.Buffer, v reflect.Value) error {
	first := true
	b.WriteByte('{')
	for _, f := range reflect.VisibleFields(v.Type()) {
		if f.Anonymous || !f.IsExported() {
			continue
		}
		if !first {
			b.WriteByte(',')
		}
		first = false
		fmt.Fprintf(b, "%q:", snake(f.Name))
		if err := encode(b, v.FieldByIndex(f.Index)); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	return nil
}

func marshal(b *bytes.Buffer, v any) error {
	text, err := json.Marshal(v)
	b.Write(text)
	return err
}

// snake is a field's name as a key: SlotEnds is slot_ends, and PID is pid.
func snake(field string) string {
	var key []rune
	runes := []rune(field)
	for i, r := range runes {
		begins := i > 0 && unicode.IsUpper(r) &&
			(unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1]))
		if begins {
			key = append(key, '_')
		}
		key = append(key, unicode.ToLower(r))
	}
	return string(key)
}
