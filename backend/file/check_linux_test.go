package file

import (
	"testing"

	"github.com/dlock/dlock/backend"
)

// A network file system cannot be mounted by a test: what is told of one is shown by
// its number.
func TestKindOfFileSystem(t *testing.T) {
	nfs := refuseMagic(0x6969, "/locks")
	for _, c := range []struct {
		err      error
		accepted bool
		want     backend.Level
	}{
		{nil, false, backend.OK},
		{nil, true, backend.OK},
		{nfs, true, backend.Warn},
		{nfs, false, backend.Fail},
	} {
		if got := judgeKind(c.err, c.accepted); got.Level != c.want {
			t.Errorf("%v, accepted %v: %+v, want %s", c.err, c.accepted, got, c.want)
		}
	}
}

func TestCheckOfNoDirectory(t *testing.T) {
	checks := New(Options{Dir: t.TempDir() + "/none"}).Check(t.Context(), 0)
	if len(checks) != 1 || checks[0].Level != backend.Fail || checks[0].Name != "directory" {
		t.Errorf("%+v, want a directory that is missing", checks)
	}
}
