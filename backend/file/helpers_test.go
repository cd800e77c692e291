package file

import (
	"path/filepath"
	"testing"

	"github.com/dlock/dlock/backend/backendtest"
)

// The suite's helpers, by the names that read best here.
var (
	exclusive, shared = backendtest.Exclusive, backendtest.Shared

	request     = backendtest.Request
	noWait      = backendtest.NoWait
	mustAcquire = backendtest.MustAcquire
	mustRelease = backendtest.MustRelease
	mustBeBusy  = backendtest.MustBeBusy
	inspectOne  = backendtest.InspectOne
)

func newBackend(t *testing.T) *Backend {
	t.Helper()
	return New(Options{Dir: filepath.Join(t.TempDir(), "locks")})
}
