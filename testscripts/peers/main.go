// Peer takes locks on Redis with the Go libraries that people use for it.
//
//	peer redsync|redislock ADDR KEY try       one try; exit 75 if somebody else has the lock
//	peer redsync|redislock ADDR KEY hold      say "held", and release at the end of stdin;
//	                                          exit 76 if the lock was not its own any more
//	peer redsync|redislock ADDR KEY contend   take it again and again until there is a file "stop"
//
// For redsync ADDR may be several, with commas between: then a majority of them is the lock.
//
// peer.py and peer.sh are the same with redis-py and with redis-cli.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	ttl   = 10 * time.Second
	pause = 100 * time.Millisecond // between two tries, and after a release

	exitBusy = 75
	exitLost = 76
)

var (
	errBusy  = errors.New("somebody else has the lock")
	errLost  = errors.New("the lock is not ours any more")
	errUsage = errors.New("usage: peer redsync|redislock ADDR KEY try|hold|contend")
)

// locker takes one lock by means of a library.
type locker interface {
	// try asks once, wait as long as the library does by itself; errBusy if in vain.
	try(context.Context) error
	wait(context.Context) error
	// release gives back what was taken; errLost if somebody else has it.
	release(context.Context) error
}

func main() {
	err := run(context.Background(), os.Args[1:])
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "peer:", err)
	switch {
	case errors.Is(err, errBusy):
		os.Exit(exitBusy)
	case errors.Is(err, errLost):
		os.Exit(exitLost)
	}
	os.Exit(1)
}

func run(ctx context.Context, args []string) error {
	if len(args) != 4 {
		return errUsage
	}
	kind, key, mode := args[0], args[2], args[3]
	var clients []*redis.Client
	for addr := range strings.SplitSeq(args[1], ",") {
		client := redis.NewClient(&redis.Options{Addr: addr})
		defer client.Close()
		clients = append(clients, client)
	}
	var l locker
	switch kind {
	case "redsync":
		l = newRedsync(clients, key)
	case "redislock":
		l = newRedislock(clients[0], key)
	default:
		return errUsage
	}
	switch mode {
	case "try":
		if err := l.try(ctx); err != nil {
			return err
		}
		return l.release(ctx)
	case "hold":
		return hold(ctx, l)
	case "contend":
		return contend(ctx, l, kind)
	}
	return errUsage
}

// hold has the lock until stdin ends.
func hold(ctx context.Context, l locker) error {
	if err := l.try(ctx); err != nil {
		return err
	}
	fmt.Println("held")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	return l.release(ctx)
}

// contend takes the lock again and again. It pauses in between: who takes it back at
// once leaves nothing to others that poll.
func contend(ctx context.Context, l locker, kind string) error {
	for ; !exists("stop"); time.Sleep(pause) {
		err := l.wait(ctx)
		if errors.Is(err, errBusy) {
			continue
		}
		if err != nil {
			return err
		}
		if err := section(kind); err != nil {
			return err
		}
		if err := l.release(ctx); err != nil {
			return err
		}
	}
	return nil
}

// section is the critical section. An overlap shows by a kernel lock of its own.
func section(kind string) error {
	guard, err := os.OpenFile("guard", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer guard.Close()
	if syscall.Flock(int(guard.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		if err := note("faults", "overlap: "+kind+"\n"); err != nil {
			return err
		}
	}
	time.Sleep(5 * time.Millisecond)
	return note(kind, "x\n")
}

// note appends to a file.
func note(file, text string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}
