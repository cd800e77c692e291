// Package lazy makes what is costly to make when it is first needed, and not at the
// start of each program, which may never need it.
package lazy

import (
	"regexp"
	"sync"
)

// Regexp compiles an expression at the first call of what it returns.
func Regexp(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
