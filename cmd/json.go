package cmd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
)

// writeJSON writes v as one line, or indented. What is not printable is escaped beyond
// what JSON asks for, since what others wrote may be printed on a terminal.
func writeJSON(w io.Writer, v any, indent bool) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	if indent {
		e.SetIndent("", "  ")
	}
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(printable(text.Bytes()))
	return err
}

// printable escapes the runes of JSON that are not printable; they can only be in strings.
func printable(text []byte) []byte {
	var b bytes.Buffer
	for _, r := range string(text) {
		switch {
		case r == '\n', unicode.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, hi, lo)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.Bytes()
}
