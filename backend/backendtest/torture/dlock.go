package torture

import (
	"fmt"
	"testing"

	"github.com/dlock/dlock/backend"
)

// Dlock builds dlock and returns its command lines for Config.Locker: with a TTL, a
// patience, a least hold, or an outer run, by chance.
func Dlock(t testing.TB) func(way string, c *Choice) []string {
	t.Helper()
	program := Build(t, "dlock")
	return func(way string, c *Choice) []string {
		args := []string{program, "-q", "-b", way, "run", "--grace", "200ms", "--ttl", []string{shortTTL.String(), longTTL.String()}[c.Random.IntN(2)]}
		switch c.Mode.Kind {
		case backend.Shared:
			args = append(args, "-s")
		case backend.Slots:
			args = append(args, "--slots", fmt.Sprint(c.Mode.N))
		}
		switch c.Random.IntN(30) {
		case 0:
			args = append(args, "-n")
		case 1:
			args = append(args, "-w", "0.2")
		case 2: // the lock stays taken
			args = append(args, "--min-hold", "300ms")
		case 3, 4:
			return append([]string{program, "-q", "-b", way, "run", "--ttl", shortTTL.String(), fmt.Sprint("outer", c.Random.Uint32())}, append(args, lockName)...)
		default:
			args = append(args, "-w", "60s")
		}
		return append(args, lockName)
	}
}
