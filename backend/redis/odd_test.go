package redis

import (
	"strings"
	"testing"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/redistest"
)

// hasProblem wants one problem, with these words.
func hasProblem(t *testing.T, b backend.Backend, words string) {
	t.Helper()
	s := backendtest.InspectOne(t, b, "job")
	if len(s.Holders) != 1 || len(s.Problems) != 1 || !strings.Contains(s.Problems[0], words) {
		t.Errorf("inspect: %+v, want a holder and the problem %q", s, words)
	}
}

func TestInspectFlagsAKeyWithoutExpiry(t *testing.T) {
	server := redistest.Start(t)
	b := fromURL(t, server.URL())
	if err := server.Client().Set(t.Context(), "dlock:{job}", "somebody", 0).Err(); err != nil {
		t.Fatal(err)
	}
	hasProblem(t, b, "the key dlock:{job} has no expiry")
}

func TestInspectFlagsAnUnreadableRecord(t *testing.T) {
	server := redistest.Start(t)
	b, client := fromURL(t, server.URL()), server.Client()
	h := backendtest.MustAcquire(t, b, backendtest.Request("job", backendtest.Exclusive))
	k, err := b.keys("job", "")
	if err != nil {
		t.Fatal(err)
	}
	field := "h:" + h.Grant().Token
	text, err := client.HGet(t.Context(), k[keyMeta], field).Result()
	if err != nil || !strings.Contains(text, `{"kind"`) {
		t.Fatalf("%v: %q", err, text)
	}
	noise := strings.Replace(text, `{"kind"`, `["kind"`, 1) // as long as it was
	if err := client.HSet(t.Context(), k[keyMeta], field, noise).Err(); err != nil {
		t.Fatal(err)
	}
	hasProblem(t, b, "the record of a holder cannot be read")
	backendtest.MustRelease(t, h)
}
