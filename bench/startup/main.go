// Command startup measures what dlock costs beside flock(1): whole processes, run in
// turns, so that the machine's noise hits all alike. It prints medians and ratios.
package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const hello = `package main

import "fmt"

func main() { fmt.Println("hello") }
`

func main() {
	rounds := flag.Int("rounds", 60, "runs of each command")
	flag.Parse()
	if err := measure(*rounds); err != nil {
		fmt.Fprintln(os.Stderr, "startup:", err)
		os.Exit(1)
	}
}

func measure(rounds int) error {
	dir, err := os.MkdirTemp("", "dlock-startup-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := build(dir); err != nil {
		return err
	}
	dlock, lock := filepath.Join(dir, "dlock"), filepath.Join(dir, "f")
	url := "file://" + filepath.Join(dir, "locks")
	contenders := []contender{
		{name: "flock f true", args: []string{"flock", lock, "true"}},
		{name: "hello, world in Go", args: []string{filepath.Join(dir, "hello")}},
		{name: "dlock version", args: []string{dlock, "version"}, beside: 1},
		{name: "dlock run x true", args: []string{dlock, "-b", url, "run", "x", "true"}, beside: 0},
	}
	for range rounds {
		for i := range contenders {
			if err := contenders[i].run(); err != nil {
				return err
			}
		}
	}
	fmt.Printf("start-up, median of %d runs in turns:\n", rounds)
	for i, c := range contenders {
		fmt.Printf("  %-20s %6.2f ms", c.name, ms(median(c.times)))
		if c.beside != i {
			fmt.Printf("   %.2f times %s", ratio(c.times, contenders[c.beside].times), contenders[c.beside].name)
		}
		fmt.Println()
	}
	server, stop, err := startRedis(dir)
	if err != nil {
		return err
	}
	defer stop()
	return handOver(rounds, []locker{
		{"flock", []string{"flock", lock}},
		{"dlock run", []string{dlock, "-b", url, "run", "x"}},
		{"dlock run on Redis", []string{dlock, "-b", server, "run", "x"}},
	})
}

// startRedis starts a server on a free port and returns its URL.
func startRedis(dir string) (url string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	host, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	c := exec.Command("redis-server", "--bind", host, "--port", port, "--save", "", "--dir", dir)
	if err := c.Start(); err != nil {
		return "", nil, fmt.Errorf("%w (apt-get install redis-server)", err)
	}
	stop = func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	}
	for limit := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("tcp", net.JoinHostPort(host, port))
		if err == nil {
			conn.Close()
			return "redis://" + net.JoinHostPort(host, port), stop, nil
		}
		if time.Now().After(limit) {
			stop()
			return "", nil, err
		}
	}
}

// build builds dlock as it is released, and the smallest Go program beside it.
func build(dir string) error {
	source := filepath.Join(dir, "hello.go")
	if err := os.WriteFile(source, []byte(hello), 0o600); err != nil {
		return err
	}
	for program, from := range map[string]string{"dlock": ".", "hello": source} {
		c := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, program), from)
		c.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s: %w\n%s", program, err, out)
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
func handOver(rounds int, lockers []locker) error {
	times := make([][]time.Duration, len(lockers))
	for range rounds {
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
