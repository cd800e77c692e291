package file

import (
	"crypto/sha256"
	"encoding/hex"
	"runtime"
	"strings"

	"github.com/dlock/dlock/backend"
)

const (
	publicSuffix = ".lock"  // the kernel lock that flock(1) shares
	stateSuffix  = ".dlock" // the directory of what only dlock reads
	maxBase      = 255 - len(stateSuffix)
)

// baseName is what the files of a lock are called, before their suffix. Two
// different pairs never meet: "+" stands only between a namespace and a name, "%"
// only begins an escape or, as "%~", the hash of what is too long.
func baseName(namespace, name string) string {
	base := backend.Escape(name, plain)
	if namespace != "" {
		base = backend.Escape(namespace, plain) + "+" + base
	}
	if len(base) <= maxBase {
		return base
	}
	sum := sha256.Sum256([]byte(base))
	hash := "%~" + hex.EncodeToString(sum[:])
	return base[:maxBase-len(hash)] + hash
}

// lockName undoes baseName; it reports false for what another namespace or another
// program named, and for a hashed name, whose original only the record has.
func lockName(namespace, base string) (string, bool) {
	if prefix := backend.Escape(namespace, plain) + "+"; namespace != "" {
		if !strings.HasPrefix(base, prefix) {
			return "", false
		}
		base = base[len(prefix):]
	}
	name, ok := backend.Unescape(base)
	if !ok || backend.CheckName(name) != nil || backend.Escape(name, plain) != base {
		return "", false
	}
	return name, true
}

// plain tells which bytes stand for themselves in a file name. A leading dot would
// hide the file; capitals meet small letters on Darwin's file systems.
func plain(i int, c byte) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_', c == '@', c == '=', c == ',':
		return true
	case c >= 'A' && c <= 'Z':
		return runtime.GOOS != "darwin"
	}
	return c == '.' && i > 0
}
