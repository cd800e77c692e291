// Command startup measures what dlock costs beside flock(1) and consul lock: whole processes, run in
// turns, so that the machine's noise hits all alike. It prints medians and ratios.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const hello = `package main

import "fmt"

func main() { fmt.Println("hello") }
`

func main() {
	rounds := flag.Int("rounds", 60, "runs of each command")
	var more []string
	flag.Func("b", "`URL` of a lock service whose hand-over is measured, too; may be repeated", func(url string) error {
		more = append(more, url)
		return nil
	})
	flag.Parse()
	// However it ends, also when the reader of its output goes away, it stops its servers.
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	defer cancel()
	if err := measure(ctx, *rounds, more); err != nil {
		fmt.Fprintln(os.Stderr, "startup:", err)
		os.Exit(1)
	}
}

// measure compares start-up, and hand-over on files, on Redis and on more services.
func measure(ctx context.Context, rounds int, more []string) error {
	dir, err := os.MkdirTemp("", "dlock-startup-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := build(dir); err != nil {
		return err
	}
	if err := startUp(ctx, dir, rounds); err != nil {
		return err
	}
	redis, stop, err := startRedis(dir)
	if err != nil {
		return err
	}
	defer stop()
	dlock := filepath.Join(dir, "dlock")
	lockers := []locker{
		{"flock", []string{"flock", filepath.Join(dir, "f")}},
		{"dlock run", []string{dlock, "-b", "file://" + filepath.Join(dir, "locks"), "run", "x"}},
		{"dlock run on Redis", []string{dlock, "-b", redis, "run", "x"}},
	}
	for i, url := range more {
		lockers = append(lockers, locker{fmt.Sprintf("on service %d", i+1), []string{dlock, "-b", url, "run", "x"}})
	}
	return handOver(ctx, rounds, lockers)
}

// startUp measures whole processes that have nothing to wait for. A Consul agent is never
// idle, and would hide what the others cost: it runs for those alone that need it.
func startUp(ctx context.Context, dir string, rounds int) error {
	dlock := filepath.Join(dir, "dlock")
	run := contender{name: "dlock run x true", args: []string{dlock, "-b", "file://" + filepath.Join(dir, "locks"), "run", "x", "true"}}
	err := compare(ctx, "start-up", rounds, []contender{
		{name: "flock f true", args: []string{"flock", filepath.Join(dir, "f"), "true"}},
		{name: "hello, world in Go", args: []string{filepath.Join(dir, "hello")}},
		{name: "dlock version", args: []string{dlock, "version"}, beside: 1},
		run,
	})
	if err != nil {
		return err
	}
	consul, addr, stop, err := startConsul(dir)
	if err != nil {
		return err
	}
	if consul == "" {
		fmt.Println("not compared with consul lock: there is no Consul (make consul)")
		return nil
	}
	defer stop()
	return compare(ctx, "beside a Consul agent", rounds, []contender{
		{name: "consul lock x true", args: consulLock(consul, addr)},
		{name: "dlock run on Consul", args: []string{dlock, "-b", "consul://" + addr, "run", "x", "true"}},
		run,
	})
}

// compare runs the contenders in turns.
func compare(ctx context.Context, title string, rounds int, contenders []contender) error {
	for range rounds {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		for i := range contenders {
			if err := contenders[i].run(); err != nil {
				return err
			}
		}
	}
	fmt.Printf("%s, median of %d runs in turns:\n", title, rounds)
	for i, c := range contenders {
		fmt.Printf("  %-20s %7.2f ms", c.name, ms(median(c.times)))
		if c.beside != i {
			fmt.Printf("   %.2f times %s", ratio(c.times, contenders[c.beside].times), contenders[c.beside].name)
		}
		fmt.Println()
	}
	return nil
}

// startRedis starts a server on a free port and returns its URL.
func startRedis(dir string) (url string, stop func(), err error) {
	port, err := freePorts(1)
	if err != nil {
		return "", nil, err
	}
	stop, err = start("redis-server", "--bind", loopback, "--port", port[0], "--save", "", "--dir", dir)
	if err != nil {
		return "", nil, fmt.Errorf("%w (apt-get install redis-server)", err)
	}
	addr := net.JoinHostPort(loopback, port[0])
	err = await(func() error {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err
	})
	if err != nil {
		stop()
	}
	return "redis://" + addr, stop, err
}

// startConsul starts the Consul that the tests have built, or the one in PATH. No program
// and no error: there is neither.
func startConsul(dir string) (program, addr string, stop func(), err error) {
	cache, _ := os.UserCacheDir()
	if built, _ := filepath.Glob(filepath.Join(cache, "dlock-test", "consul-*[0-9]")); len(built) > 0 {
		program = built[0]
	} else if program, err = exec.LookPath("consul"); err != nil {
		return "", "", nil, nil
	}
	port, err := freePorts(4)
	if err != nil {
		return "", "", nil, err
	}
	addr = net.JoinHostPort(loopback, port[0])
	stop, err = start(program, "agent", "-dev", "-bind", loopback, "-log-level", "err", "-http-port", port[0], "-server-port", port[1],
		"-serf-lan-port", port[2], "-serf-wan-port", port[3], "-dns-port", "-1", "-grpc-port", "-1", "-grpc-tls-port", "-1")
	if err != nil {
		return "", "", nil, err
	}
	lock := consulLock(program, addr)
	if err = await(func() error { return exec.Command(lock[0], lock[1:]...).Run() }); err != nil { // without a leader it fails
		stop()
	}
	return program, addr, stop, err
}

// consulLock is what a crontab has that uses consul lock; the lock is not dlock's.
func consulLock(program, addr string) []string {
	return []string{program, "lock", "-http-addr", addr, "y", "true"}
}

const loopback = "127.0.0.1"

// freePorts finds ports that nobody listens to.
func freePorts(n int) (ports []string, err error) {
	for range n {
		l, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
		if err != nil {
			return nil, err
		}
		defer l.Close()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		ports = append(ports, port)
	}
	return ports, nil
}

// start starts a server.
func start(program string, args ...string) (stop func(), err error) {
	c := exec.Command(program, args...)
	if err := c.Start(); err != nil {
		return nil, err
	}
	return func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	}, nil
}

// await tries until it succeeds, or for some time.
func await(try func() error) error {
	for limit := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := try()
		if err == nil || time.Now().After(limit) {
			return err
		}
	}
}

// build builds dlock as it is released, and the smallest Go program beside it. Both are
// copied, as an installation does it: what the linker itself has written lies in small
// pieces in the page cache, and starts more slowly the larger it is.
func build(dir string) error {
	source := filepath.Join(dir, "hello.go")
	if err := os.WriteFile(source, []byte(hello), 0o600); err != nil {
		return err
	}
	for program, from := range map[string]string{"dlock": ".", "hello": source} {
		c := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, "built"), from)
		c.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s: %w\n%s", program, err, out)
		}
		text, err := os.ReadFile(filepath.Join(dir, "built"))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, program), text, 0o700); err != nil {
			return err
		}
	}
	return nil
}

type contender struct {
	name   string
	args   []string
	beside int // the contender that it is compared with
	times  []time.Duration
}

func (c *contender) run() error {
	began := time.Now()
	if out, err := exec.Command(c.args[0], c.args[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", c.name, err, out)
	}
	c.times = append(c.times, time.Since(began))
	return nil
}

// locker is a command line that runs what follows it under a lock.
type locker struct {
	name string
	args []string
}

// handOver measures the time from the end of one holder's command to the start of
// the next one's, by the clock that both print.
func handOver(ctx context.Context, rounds int, lockers []locker) error {
	times := make([][]time.Duration, len(lockers))
	for range rounds {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		for i, l := range lockers {
			d, err := oneHandOver(l.args)
			if err != nil {
				return err
			}
			times[i] = append(times[i], d)
		}
	}
	fmt.Printf("hand-over to a waiting process, median of %d in turns:\n", rounds)
	for i, l := range lockers {
		fmt.Printf("  %-20s %6.2f ms   %.2f times %s\n", l.name, ms(median(times[i])), ratio(times[i], times[0]), lockers[0].name)
	}
	return nil
}

func oneHandOver(lock []string) (time.Duration, error) {
	holder := exec.Command(lock[0], append(lock[1:], "sh", "-c", "echo held; read line; date +%s%N")...)
	in, err := holder.StdinPipe()
	if err != nil {
		return 0, err
	}
	out, err := holder.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := holder.Start(); err != nil {
		return 0, err
	}
	if _, err := fmt.Fscanln(out, new(string)); err != nil {
		return 0, err
	}
	waiter := exec.Command(lock[0], append(lock[1:], "date", "+%s%N")...)
	var began strings.Builder
	waiter.Stdout = &began
	if err := waiter.Start(); err != nil {
		return 0, err
	}
	time.Sleep(100 * time.Millisecond) // until it waits
	fmt.Fprintln(in)
	var ended, started int64
	if _, err := fmt.Fscan(out, &ended); err != nil {
		return 0, err
	}
	if err := holder.Wait(); err != nil {
		return 0, err
	}
	if err := waiter.Wait(); err != nil {
		return 0, err
	}
	_, err = fmt.Sscan(began.String(), &started)
	return time.Duration(started - ended), err
}

func median(times []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[len(sorted)/2]
}

func ratio(a, b []time.Duration) float64 { return float64(median(a)) / float64(median(b)) }

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
