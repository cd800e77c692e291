//go:build linux

// Command broken is a lock program on Redis with one fault of its own choice, to show
// that the torture harness finds it:
//
//	broken FLAW ADDR NAME TTL -- COMMAND [ARG…]
//
// With the flaw "none" or "naive" it has none, and must pass: "none" keeps the lease by
// packages renew and runner as dlock does; "naive" believes what its renewals say and
// keeps no deadline, as most libraries do.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/dlock/dlock/renew"
	"github.com/dlock/dlock/runner"
)

func main() {
	if len(os.Args) < 7 {
		fmt.Fprintln(os.Stderr, "usage: broken FLAW ADDR NAME TTL -- COMMAND [ARG…]")
		os.Exit(2)
	}
	ttl, err := time.ParseDuration(os.Args[4])
	if err != nil {
		fmt.Fprintln(os.Stderr, "broken:", err)
		os.Exit(2)
	}
	l := &lock{flaw: os.Args[1], name: os.Args[3], token: uuid.NewString(), ttl: ttl, skew: skew(), client: dial(os.Args[2])}
	os.Exit(l.run(os.Args[6:]))
}

func dial(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, MaxRetries: -1, DisableIdentity: true, ContextTimeoutEnabled: true, DialerRetries: 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// skew is how far this host's clock is off, for who believes in clocks.
func skew() time.Duration {
	if os.Getpid()%2 == 0 {
		return 3 * time.Second
	}
	return 0
}

// run takes the lock, runs the command and gives the lock back.
func (l *lock) run(command []string) int {
	signals := runner.Signals()
	if err := l.acquire(context.Background(), signals); err != nil {
		return 69
	}
	env := append(os.Environ(), "DLOCK_TOKEN="+l.token, fmt.Sprint("DLOCK_FENCE=", l.fence), "DLOCK_NAME="+l.name)
	switch l.flaw {
	case "naive", "set", "direct child", "early release":
		return l.runNaively(command, env)
	}
	return l.runGuarded(command, env, signals)
}

// runGuarded runs the command as dlock does.
func (l *lock) runGuarded(command, env []string, signals <-chan os.Signal) int {
	path, err := runner.Find(command[0])
	if err != nil {
		return 127
	}
	proc, err := runner.Start(runner.Spec{
		Path: path, Args: command, Env: append(env, "BROKEN="+l.token), Mark: l.token, Signals: signals,
		Grace: 200 * time.Millisecond, Kill: l.lease.KillAt(), End: l.lease.Deadline(),
	})
	if err != nil {
		return 127
	}
	keeper := renew.Keep(l, l.lease, renew.Config{
		Grace: 200 * time.Millisecond, OnLease: func(x lease) { proc.SetDeadline(x.KillAt(), x.Deadline()) },
	})
	over, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-over:
		case loss := <-keeper.Lost():
			proc.Stop(loss.Kill, loss.End)
		}
	}()
	result := proc.Wait()
	close(over)
	<-watched
	keeper.Stop()
	l.release()
	return result.Code
}

// runNaively runs the command in a group of its own, and kills it when a renewal says
// that the lock is lost, or when told to end.
func (l *lock) runNaively(command, env []string) int {
	c := exec.Command(command[0], command[1:]...)
	c.Env, c.Stderr = env, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM, syscall.SIGINT)
	if err := c.Start(); err != nil {
		return 127
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	for {
		select {
		case <-ended:
			l.release()
			return c.ProcessState.ExitCode()
		case <-told:
			return l.stopNaively(c, ended)
		case <-time.After(l.ttl / 3):
			ctx, cancel := context.WithTimeout(context.Background(), l.ttl/3)
			_, err := l.Renew(ctx)
			cancel()
			if errors.Is(err, errLost) {
				l.killNaively(c)
				<-ended
				return 76
			}
		}
	}
}

// stopNaively ends the command because somebody wants it.
func (l *lock) stopNaively(c *exec.Cmd, ended <-chan error) int {
	if l.flaw == "early release" {
		l.release()
	}
	_ = syscall.Kill(-c.Process.Pid, syscall.SIGTERM)
	select {
	case <-ended:
	case <-time.After(l.ttl / 2):
		l.killNaively(c)
		<-ended
	}
	l.release()
	return 143
}

func (l *lock) killNaively(c *exec.Cmd) {
	if l.flaw == "direct child" {
		_ = c.Process.Kill()
		return
	}
	_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
}
