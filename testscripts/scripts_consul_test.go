package testscripts

import (
	"fmt"
	"testing"

	"github.com/dlock/dlock/backend/backendtest/consultest"
)

// consulPrefix starts a server; each script has a prefix of its own.
func consulPrefix(t *testing.T) place {
	url := consultest.Start(t).URL()
	return func(_ string, n int) string { return fmt.Sprintf("%s/scripts/%d", url, n) }
}
