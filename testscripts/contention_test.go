package testscripts

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// section is the critical section of the contention test. It checks for overlap by a
// kernel lock that only its own processes hold, and never the lock under test, so that
// a dead dlock cannot hide that its command lives on.
const section = `
exec 9>>guard
flock -n 9 || echo "overlap: pid $$" >>faults
if [ -n "$DLOCK_FENCE" ]; then
	last=$(cat fence 2>/dev/null)
	[ "$DLOCK_FENCE" -gt "${last:-0}" ] || echo "fence $DLOCK_FENCE after $last" >>faults
	echo "$DLOCK_FENCE" >fence.$$ && mv fence.$$ fence
fi
echo x >>sections
[ -z "$MARK" ] || touch "inside.$PPID"
sleep 0.002 | cat
`

// TestContention lets dlock run, and flock(1) where dlock's locks are the kernel's,
// contend for one lock while dlocks are killed: of 32 processes a third are killed at
// random, and half of the rest are flock(1).
func TestContention(t *testing.T) {
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			rounds, end := 5, "10s" // the guard of one that was killed at last may still be at work
			if os.Getenv("DLOCK_FULL") != "" {
				rounds = 200
			}
			if b.lease { // the dead keep the lock for a while
				rounds, end = max(1, rounds/8), "1m"
			}
			testContention(t, b.start(t), rounds, b.name == "file", end)
		})
	}
}

// testContention wants the lock to be free within the time end when all is over.
func testContention(t *testing.T, at place, rounds int, withFlock bool, end string) {
	const processes = 32
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "section"), []byte(section), 0o600); err != nil {
		t.Fatal(err)
	}
	url := at(dir, 0)
	if out, err := dlock(dir, url, "run", "j", "--", "true").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var all sync.WaitGroup
	for p := range processes {
		random := rand.New(rand.NewPCG(seed, uint64(p)))
		all.Go(func() {
			for range rounds {
				if err := contend(p, random, dir, url, withFlock); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if faults, err := os.ReadFile(filepath.Join(dir, "faults")); err == nil {
		t.Errorf("faults:\n%s", faults)
	}
	sections, _ := os.ReadFile(filepath.Join(dir, "sections"))
	killed, _ := filepath.Glob(filepath.Join(dir, "inside.*"))
	t.Logf("%d sections, %d of them under a dlock that was killed", strings.Count(string(sections), "x"), len(killed))
	if len(killed) == 0 {
		t.Error("no dlock was killed while its command ran: the test shows nothing")
	}
	if out, err := dlock(dir, url, "run", "-w", end, "j", "--", "true").CombinedOutput(); err != nil {
		t.Errorf("the lock is not free at the end: %v\n%s", err, out)
	}
}

// contend is one round of contender p.
func contend(p int, random *rand.Rand, dir, url string, withFlock bool) error {
	victim := p%3 == 0
	c := dlock(dir, url, "run", "--ttl", "2s", "--grace", "200ms", "j", "--", "sh", "section")
	if withFlock && !victim && p%2 == 0 {
		c = exec.Command("flock", filepath.Join(dir, "locks", "j.lock"), "sh", "section")
		c.Dir = dir
	}
	var said strings.Builder
	c.Stderr = &said
	if victim {
		c.Env = append(os.Environ(), "MARK=1")
	}
	if err := c.Start(); err != nil {
		return err
	}
	if victim {
		stop := make(chan struct{})
		defer close(stop)
		go kill(c.Process, filepath.Join(dir, fmt.Sprintf("inside.%d", c.Process.Pid)), random, stop)
	}
	err := c.Wait()
	exit := (*exec.ExitError)(nil)
	if errors.As(err, &exit) && (victim && exit.ExitCode() == -1 || exit.ExitCode() == 76) {
		return nil // killed, or on a machine so busy that it could not renew: it has stopped its command
	}
	if err != nil {
		return fmt.Errorf("contender %d: %w\n%s", p, err, said.String())
	}
	return nil
}

// kill kills a dlock, in three of four cases while its command runs, else at some moment.
func kill(p *os.Process, inside string, random *rand.Rand, stop <-chan struct{}) {
	inLine := time.Hour
	if random.IntN(4) == 0 {
		inLine = time.Duration(random.Int64N(int64(10 * time.Second)))
	}
	for began := time.Now(); time.Since(began) < inLine; time.Sleep(time.Millisecond) {
		select {
		case <-stop:
			return
		default:
		}
		if _, err := os.Stat(inside); err == nil {
			time.Sleep(time.Duration(random.Int64N(int64(20 * time.Millisecond))))
			break
		}
	}
	_ = p.Kill()
}

// dlock is a command line of the binary under test.
func dlock(dir, url string, args ...string) *exec.Cmd {
	c := exec.Command(filepath.Join(binDir, "dlock"), append([]string{"-b", url}, args...)...)
	c.Dir = dir
	return c
}
