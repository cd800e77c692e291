package backend

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxName is the longest lock name, in bytes.
const MaxName = 255

// CheckName refuses what is not a lock name with ErrInvalid: a name is any
// non-empty UTF-8 of at most MaxName bytes without control characters.
func CheckName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w lock name: it is empty", ErrInvalid)
	case len(name) > MaxName:
		return fmt.Errorf("%w lock name: %d bytes long, at most %d are allowed", ErrInvalid, len(name), MaxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w lock name: it is not UTF-8", ErrInvalid)
	case strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("%w lock name: it contains a control character", ErrInvalid)
	}
	return nil
}

// Escape replaces each byte of s that keep refuses, and each "%", by "%XX". Two
// different strings never give the same result.
func Escape(s string, keep func(i int, c byte) bool) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c != '%' && keep(i, c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// Unescape undoes Escape; it reports false for what Escape cannot have made.
func Unescape(s string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", false
		}
		hi, lo := strings.IndexByte(hexDigits, s[i+1]), strings.IndexByte(hexDigits, s[i+2])
		if hi < 0 || lo < 0 {
			return "", false
		}
		b.WriteByte(byte(hi<<4 | lo))
		i += 2
	}
	return b.String(), true
}

const hexDigits = "0123456789ABCDEF"
