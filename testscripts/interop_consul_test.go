package testscripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/dlock/dlock/backend/backendtest/consultest"
)

// consulPlace is a prefix on a server where dlock and `consul lock` meet.
type consulPlace struct {
	*consultest.Server
	t   *testing.T
	dir string
}

func (p consulPlace) dlock(args ...string) *exec.Cmd {
	return dlock(p.dir, p.URL()+"/jobs", args...)
}

// consul is `consul lock` on a lock below the prefix.
func (p consulPlace) consul(name string, flags []string, command ...string) *exec.Cmd {
	args := append([]string{"lock", "-http-addr=" + p.Addr(), "-shell=false", "-pass-stdin"}, flags...)
	c := exec.Command(consultest.Program(p.t), append(append(args, "jobs/"+name), command...)...)
	c.Dir = p.dir
	return c
}

var consulTry = []string{"-try=500ms"}

// TestConsulPeers lets dlock and `consul lock` have the same lock: step by step, then
// all at once.
func TestConsulPeers(t *testing.T) {
	t.Parallel()
	p := consulPlace{consultest.Start(t), t, t.TempDir()}
	for _, mode := range [][]string{{}, {"--shared"}} {
		release := hold(t, p.dlock(append(append([]string{"run", "-n"}, mode...), "j", "--", "sh", "-c", "echo held; cat")...))
		wantExit(t, p.consul("j", consulTry, "true"), 1)
		release(0)
	}
	wantExit(t, p.consul("j", consulTry, "true"), 0)
	token := strings.TrimSpace(wantExit(t, p.dlock("acquire", "-n", "--ttl=1h", "j"), 0))
	wantExit(t, p.consul("j", consulTry, "true"), 1)
	wantExit(t, p.dlock("release", "j", token), 0)
	wantExit(t, p.dlock("run", "-n", "--min-hold=1h", "k", "--", "true"), 0)
	wantExit(t, p.consul("k", consulTry, "true"), 1)

	release := hold(t, p.consul("j", nil, "sh", "-c", "echo held; cat"))
	for _, mode := range []string{"--no-wait", "--no-wait --shared", "--no-wait --slots=2"} {
		run := append(append([]string{"run"}, strings.Fields(mode)...), "j", "--", "true")
		if said := wantExit(t, p.dlock(run...), 75); !strings.Contains(said, "not dlock") {
			t.Errorf("%s tells nothing of the holder: %s", mode, said)
		}
	}
	wantOneForeign(t, wantExit(t, p.dlock("inspect", "--json", "j"), 0))
	wantExit(t, p.dlock("release", "j", uuid.NewString()), 76)
	wantExit(t, p.dlock("release", "--force", "--yes", "j", "ffffff"), 64)
	release(0)
	wantExit(t, p.dlock("run", "-n", "j", "--", "true"), 0)
}

// TestConsulSemaphorePeers does the same with `consul lock -n 2`.
func TestConsulSemaphorePeers(t *testing.T) {
	t.Parallel()
	p := consulPlace{consultest.Start(t), t, t.TempDir()}
	two := []string{"-n=2", "-try=500ms"}
	one := hold(t, p.consul("j", []string{"-n=2"}, "sh", "-c", "echo held; cat"))
	wantExit(t, p.dlock("run", "-n", "--slots=2", "j", "true"), 0)
	other := hold(t, p.dlock("run", "-n", "--slots=2", "j", "sh", "-c", "echo held; cat"))
	wantExit(t, p.consul("j", two, "true"), 1)
	wantExit(t, p.dlock("run", "-n", "--slots=2", "j", "true"), 75)
	wantExit(t, p.dlock("run", "-n", "j", "true"), 75)
	wantExit(t, p.dlock("run", "-n", "--shared", "j", "true"), 75)
	wantExit(t, p.consul("j", []string{"-n=3", "-try=500ms"}, "true"), 1)
	wantExit(t, p.consul("j", consulTry, "true"), 1)
	one(0)
	wantExit(t, p.consul("j", two, "true"), 0)
	other(0)
	one = hold(t, p.consul("j", []string{"-n=2"}, "sh", "-c", "echo held; cat"))
	if said := wantExit(t, p.dlock("run", "-n", "--slots=3", "j", "true"), 64); !strings.Contains(said, "the lock has 2") {
		t.Errorf("said %s", said)
	}
	one(0)
	wantExit(t, p.dlock("run", "-n", "j", "true"), 0)
}

// slotSection is the critical section of a contender for one of three slots, which
// checks by kernel locks that there are no more.
const slotSection = `
got=
for i in 1 2 3; do
	exec 9>>slot$i
	if flock -n 9; then got=$i; break; fi
done
[ -n "$got" ] || echo "more than three: $1" >>faults
echo x >>$1
sleep 0.01
`

// TestConsulPeersContend lets dlocks and `consul lock`s have one lock again and again.
func TestConsulPeersContend(t *testing.T) {
	t.Parallel()
	server := consultest.Start(t)
	for what, tt := range map[string]struct {
		section       string
		dlock, consul []string
	}{
		"exclusive": {peerSection, nil, nil},
		"slots":     {slotSection, []string{"--slots=3"}, []string{"-n=3"}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			p := consulPlace{server, t, t.TempDir()}
			if err := os.WriteFile(filepath.Join(p.dir, "section"), []byte(tt.section), 0o600); err != nil {
				t.Fatal(err)
			}
			length := 5 * time.Second
			if os.Getenv("DLOCK_FULL") != "" {
				length = 30 * time.Second
			}
			stop := filepath.Join(p.dir, "stop")
			counts := map[string]string{"dlock": "dlock", "consul": "consul"}
			run := append(append([]string{"run"}, tt.dlock...), "c-"+what, "--", "sh", "section", "dlock", "-x")
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					for !exists(stop) && !t.Failed() {
						wantExit(t, p.dlock(run...), 0)
					}
				})
				all.Go(func() {
					for !exists(stop) && !t.Failed() {
						wantExit(t, p.consul("c-"+what, tt.consul, "sh", "section", "consul", "-x"), 0)
					}
				})
			}
			began := time.Now()
			for time.Since(began) < length || starved(p.dir, counts) != "" && time.Since(began) < length+patience {
				time.Sleep(100 * time.Millisecond)
			}
			if err := os.WriteFile(stop, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			all.Wait()
			t.Logf("dlock: %d times, consul lock: %d times", lines(p.dir, "dlock"), lines(p.dir, "consul"))
			if kinds := starved(p.dir, counts); kinds != "" {
				t.Errorf("starved:%s", kinds)
			}
			if faults, err := os.ReadFile(filepath.Join(p.dir, "faults")); err == nil {
				t.Errorf("faults:\n%s", faults)
			}
			wantExit(t, p.dlock("run", "-n", "c-"+what, "--", "true"), 0)
		})
	}
}

// TestConsulPeersCrash kills a holder of either side, and lets the other one get in. Of
// two slots the other one stays taken.
func TestConsulPeersCrash(t *testing.T) {
	t.Parallel()
	server := consultest.Start(t)
	const held = "echo held; cat"
	for mode, flags := range map[string]struct{ dlock, consul []string }{"exclusive": {}, "slots": {[]string{"--slots=2"}, []string{"-n=2"}}} {
		for _, victim := range []string{"dlock", "consul"} {
			t.Run(mode+", "+victim+" killed", func(t *testing.T) {
				t.Parallel()
				p := consulPlace{server, t, t.TempDir()}
				name := victim + "-" + mode
				dlock := func(args ...string) *exec.Cmd {
					return p.dlock(append(append(append([]string{"run"}, flags.dlock...), "--ttl=2s", "--grace=1", "-w=100s", name, "--"), args...)...)
				}
				consul := func(args ...string) *exec.Cmd { return p.consul(name, flags.consul, args...) }
				dead, next := dlock, consul
				if victim == "consul" {
					dead, next = consul, dlock
				}
				if mode == "slots" {
					defer hold(t, next("sh", "-c", held))(0)
				}
				c := dead("sh", "-c", held)
				release := hold(t, c)
				began := time.Now()
				kill9(t, c)
				wantExit(t, next("true"), 0)
				t.Logf("free after %v", time.Since(began).Round(time.Millisecond))
				release(-1)
			})
		}
	}
}
