package cmd

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/dlock/dlock/backend"
)

func TestSafe(t *testing.T) {
	for s, want := range map[string]string{
		"": "", "plain": "plain", "ü 😀 日本": "ü 😀 日本", `back\slash 'q' "d"`: `back\slash 'q' "d"`,
		"a\nb": `a\nb`, "\x1b[31m": `\x1b[31m`, "\r\t\x00\x7f": `\r\t\x00\x7f`, "\u0085": `\u0085`,
		"\u202e": `\u202e`, "\u2028": `\u2028`, "\xff": "�", "a\u00a0b": `a\u00a0b`,
	} {
		if got := safe(s); got != want {
			t.Errorf("%q is shown as %q, want %q", s, got, want)
		}
	}
}

func FuzzSafe(f *testing.F) {
	f.Add("a\x1b[0m\u202e\xff\n")
	f.Fuzz(func(t *testing.T, s string) {
		got := safe(s)
		if strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q is shown as %q", s, got)
		}
		if safe(got) != got {
			t.Errorf("%q, shown again, is %q", got, safe(got))
		}
	})
}

func TestShellQuoteLeavesPlainWordsAlone(t *testing.T) {
	for _, s := range []string{"backup", "a/b.c", "user@host:1,2", "50%", "a=b"} {
		if got := shellQuote(s); got != s {
			t.Errorf("%q is quoted as %q", s, got)
		}
	}
	if got := shellQuote("-n"); got == "-n" {
		t.Error("-n would be taken for a flag by the eye")
	}
}

func TestShellQuoteThroughAShell(t *testing.T) {
	words := []string{"", " ", "'", `"`, `\`, "a b", "$HOME", "`id`", "a'b'c", "*", "~", "#", "a\nb", "!", "-n", "ü", "\x1b", "\xff", "a;b", "&", "(", "{a,b}"}
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		word := make([]byte, random.IntN(12))
		for i := range word {
			word[i] = byte(1 + random.IntN(255))
		}
		words = append(words, string(word))
	}
	line := `printf '%s\0'`
	for _, w := range words {
		line += " " + shellQuote(w)
	}
	out, err := exec.Command("sh", "-c", line).Output()
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	if len(got) != len(words) {
		t.Fatalf("%d words came out as %d", len(words), len(got))
	}
	for i := range words {
		if got[i] != words[i] {
			t.Errorf("%q came out as %q", words[i], got[i])
		}
	}
}

func TestDescribeHolders(t *testing.T) {
	run := backend.Holder{Held: 192 * time.Second, Owner: backend.Owner{Kind: backend.Run, User: "root", Host: "web1", PID: 4242, Command: "./backup.sh"}}
	detached := backend.Holder{
		Held: time.Second, Leased: true, Left: time.Minute,
		Owner: backend.Owner{Kind: backend.Detached, User: "eve", Host: "ci", PID: 7, Reason: "deploy"},
	}
	foreign := backend.Holder{Held: -1, Owner: backend.Owner{Kind: backend.Foreign, PID: 9}}
	tail := run
	tail.Tail, tail.Left = true, 30*time.Second
	revoked := run
	revoked.Revoked = true
	for _, c := range []struct {
		holders []backend.Holder
		ahead   int
		want    string
	}{
		{[]backend.Holder{run}, 0, "held by root@web1 (pid 4242, ./backup.sh) for 3m12s"},
		{[]backend.Holder{run}, 2, "held by root@web1 (pid 4242, ./backup.sh) for 3m12s, 2 ahead in line"},
		{[]backend.Holder{detached}, 0, "held by eve@ci (dlock acquire, reason: deploy) for 1s, 1m00s left"},
		{[]backend.Holder{foreign}, 0, "held by somebody (not dlock, pid 9)"},
		{[]backend.Holder{tail}, 0, "kept by --min-hold of root@web1 (pid 4242, ./backup.sh) for another 30s"},
		{[]backend.Holder{revoked}, 0, "held by root@web1 (pid 4242, ./backup.sh) for 3m12s, revoked"},
		{[]backend.Holder{{Held: -1}, {Held: -1}, {Held: -1}, {Held: -1}, {Held: -1}}, 0, "held by somebody, held by somebody, held by somebody, and 2 more"},
		{nil, 0, "held by somebody else"},
		{nil, 3, "promised to those in line, 3 ahead in line"},
	} {
		if got := describeHolders(c.holders, c.ahead); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func TestMessagesAreOneLine(t *testing.T) {
	var out bytes.Buffer
	u := &ui{out: &out}
	u.fail("a\nb", "bad\x1b[0m", "do\nthis")
	u.warn("j", "%s", "x\ny")
	u.flush()
	if got, want := out.String(), "dlock: error: a\\nb: bad\\x1b[0m\ndlock: hint: do\\nthis\ndlock: warning: j: x\\ny\n"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	out.Reset()
	u.quiet, u.verbose = true, true
	u.warn("j", "w")
	u.note("j", "n")
	u.detail("j", "d")
	u.hint("h")
	u.fail("j", "f", "h")
	u.flush()
	if got, want := out.String(), "dlock: warning: j: w\ndlock: error: j: f\n"; got != want {
		t.Errorf("quiet: got %q, want %q", got, want)
	}
}

// TestStderrThatNobodyReads must not hang: what prints is never what stops a command
// or releases a lock.
func TestStderrThatNobodyReads(t *testing.T) {
	r, w := io.Pipe()
	defer r.Close()
	u := &ui{out: w}
	for range 2 * queueLength {
		u.warn("j", "nobody reads this")
	}
	u.flush()
}
